/** A link of the call chain above the work. Public: each is a class of its own loader. */
public interface Link {
    /** The work at the end of the chain. */
    interface Leaf {
        double burn(int turns);
    }

    double call(Link[] chain, int at, Leaf leaf, int turns);
}
