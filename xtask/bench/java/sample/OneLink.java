/**
 * The code of every link, loaded once per link: methods of the same name, each compiled separately. A link has two frames, of which
 * the compiler inlines one into the other, as it does with about half of a service's frames.
 */
public final class OneLink implements Link {
    @Override
    public double call(Link[] chain, int at, Leaf leaf, int turns) {
        return pass(chain, at, leaf, turns) + 1;
    }

    private static double pass(Link[] chain, int at, Leaf leaf, int turns) {
        return 0.5 * (at == chain.length ? leaf.burn(turns) : chain[at].call(chain, at + 1, leaf, turns));
    }
}
