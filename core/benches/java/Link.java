/** A link of the chain of calls below which the work is done. Public: each is a class of its own loader. */
public interface Link {
    /** What is done at the end of the chain. */
    interface Leaf {
        double burn(int turns);
    }

    double call(Link[] chain, int at, Leaf leaf, int turns);
}
