import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/** A stack of chosen depth: each link has its own class, in changing order, so none can be inlined into another. */
final class Chain {
    private static final int FRAMES_PER_LINK = 2;
    /** Frames of the program below and above the links. */
    private static final int OTHER_FRAMES = 4;
    private static final int ORDERS = 8;

    private final List<Link[]> orders = new ArrayList<>();
    /** Recursion depth of the one method; negative where there are links. */
    private final int recursion;
    private int turn;

    /** A chain of links like {@link OneLink}. */
    Chain(int depth) {
        this(depth, false);
    }

    /** A chain of links, or of one recursive method. */
    Chain(int depth, boolean isOneMethod) {
        recursion = isOneMethod ? depth - OTHER_FRAMES : -1;
        int count = isOneMethod ? 0 : (depth - OTHER_FRAMES) / FRAMES_PER_LINK;
        List<Link> links = new ArrayList<>();
        for (int link = 0; link < count; link++) {
            links.add(Loader.link());
        }
        Random random = new Random(depth);
        for (int order = 0; order < ORDERS; order++) {
            Collections.shuffle(links, random);
            orders.add(links.toArray(new Link[0]));
        }
    }

    /** Work at the end of the chain, each time in another order of links. */
    double below(Link.Leaf leaf, int turns) {
        if (recursion >= 0) {
            return deep(recursion, leaf, turns);
        }
        Link[] chain = orders.get(turn++ % ORDERS);
        return chain.length == 0 ? leaf.burn(turns) : chain[0].call(chain, 1, leaf, turns);
    }

    private static double deep(int more, Link.Leaf leaf, int turns) {
        return more == 0 ? leaf.burn(turns) : 0.5 * deep(more - 1, leaf, turns) + 1;
    }

    /** A loader for one class. */
    private static final class Loader extends ClassLoader {
        private Loader() {
            super(Chain.class.getClassLoader());
        }

        static Link link() {
            try (InputStream code = Chain.class.getResourceAsStream("OneLink.class")) {
                byte[] bytes = code.readAllBytes();
                Class<?> link = new Loader().defineClass("OneLink", bytes, 0, bytes.length);
                return (Link) link.getDeclaredConstructor().newInstance();
            } catch (IOException | ReflectiveOperationException broken) {
                throw new IllegalStateException(broken);
            }
        }
    }
}
