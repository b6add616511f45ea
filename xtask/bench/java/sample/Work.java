import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.ToIntFunction;

/** The profiled work, below a stack of chosen depth, and the clocks that measure its true cost. */
final class Work {
    /** A part of a mix: its method, and the number of turns for its share. */
    record Part(String method, int turns, Link.Leaf leaf) {}

    private static final ThreadMXBean CLOCKS = ManagementFactory.getThreadMXBean();

    /** Prefix of the cycle of periodic work in milliseconds of CPU time. */
    static final String CYCLE = "cycle-";

    static double sink;

    private Work() {}

    static double half(int turns) {
        double sum = 0;
        for (int i = 0; i < turns; i++) {
            sum = step(sum, i);
        }
        return sum;
    }

    static double third(int turns) {
        double sum = 1;
        for (int i = 0; i < turns; i++) {
            sum = grow(sum, i);
        }
        return sum;
    }

    static double fifth(int turns) {
        double sum = 2;
        for (int i = 0; i < turns; i++) {
            sum = shrink(sum, i);
        }
        return sum;
    }

    private static double step(double sum, int i) {
        return sum + Math.sqrt(i + sum);
    }

    private static double grow(double sum, int i) {
        return sum * 1.000001 + Math.sqrt(scaled(i));
    }

    private static double shrink(double sum, int i) {
        return Math.sqrt(sum + scaled(i));
    }

    private static double scaled(int i) {
        return i * 0.5;
    }

    /** Work in more memory than the caches hold: it evicts everything else. */
    private static final class Memory {
        private static final int INDEX_BITS = 22;
        private static final long[] WORDS = new long[1 << INDEX_BITS];
        private static long at;

        static double walk(int turns) {
            long sum = 0;
            for (int i = 0; i < turns / 16; i++) {
                at = at * 6_364_136_223_846_793_005L + 1_442_695_040_888_963_407L;
                sum += WORDS[(int) (at >>> (Long.SIZE - INDEX_BITS))]++;
            }
            return sum;
        }
    }

    static final List<Part> ARITHMETIC = List.of(
            new Part("Work.half", 40, Work::half), new Part("Work.third", 69, Work::third), new Part("Work.fifth", 18, Work::fifth));

    private static double part(int micros) {
        return spend(micros);
    }

    private static double rest(int micros) {
        return spend(micros);
    }

    private static double spend(int micros) {
        long end = threadCpuNs() + micros * 1000L;
        while (threadCpuNs() < end) {
            Thread.onSpinWait();
        }
        return micros;
    }

    /** 30 % of each cycle of CPU time in one method and the rest in another; turns are microseconds. */
    private static List<Part> cycle(int milliseconds) {
        return List.of(new Part("Work.part", 300 * milliseconds, Work::part), new Part("Work.rest", 700 * milliseconds, Work::rest));
    }

    static List<Part> parts(String kind) {
        if (kind.startsWith(CYCLE)) {
            return cycle(Integer.parseInt(kind.substring(CYCLE.length())));
        }
        return switch (kind) {
            case "memory" -> List.of(new Part("Work$Memory.walk", 100, Memory::walk));
            case "native" -> NativeWork.PARTS;
            default -> ARITHMETIC;
        };
    }

    static long threadCpuNs() {
        return CLOCKS.getCurrentThreadCpuTime();
    }

    /** Works until the thread's CPU clock has advanced by so much; the measured time of each part is added to {@code truth}. */
    static void mix(Chain chain, List<Part> parts, double cpuSeconds, long[] truth) {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        // Of random length: work in step with the kernel's tick would meet it always at the same point.
        burn(chain, parts, cpuSeconds, truth, part -> (int) (part.turns * 4000 * random.nextDouble()));
    }

    /** As {@link #mix}, with parts of constant length. */
    static void periodic(Chain chain, List<Part> parts, double cpuSeconds, long[] truth) {
        burn(chain, parts, cpuSeconds, truth, Part::turns);
    }

    private static void burn(Chain chain, List<Part> parts, double cpuSeconds, long[] truth, ToIntFunction<Part> turns) {
        long end = threadCpuNs() + (long) (cpuSeconds * 1e9);
        while (threadCpuNs() < end) {
            for (int number = 0; number < truth.length; number++) {
                Part part = parts.get(number);
                long begun = threadCpuNs();
                sink += chain.below(part.leaf, turns.applyAsInt(part));
                truth[number] += threadCpuNs() - begun;
            }
        }
    }

    static void mix(Chain chain, List<Part> parts, double cpuSeconds) {
        mix(chain, parts, cpuSeconds, new long[parts.size()]);
    }
}
