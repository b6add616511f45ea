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
    private int turn;

    /** A chain of links like {@link OneLink}. */
    Chain(int depth) {
        List<Link> links = new ArrayList<>();
        for (int link = 0; link < (depth - OTHER_FRAMES) / FRAMES_PER_LINK; link++) {
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
        Link[] chain = orders.get(turn++ % ORDERS);
        return chain.length == 0 ? leaf.burn(turns) : chain[0].call(chain, 1, leaf, turns);
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
