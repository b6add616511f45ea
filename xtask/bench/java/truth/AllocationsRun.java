import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * Allocates 60, 30 and 10 % of 6.4 GB in three methods, arrays of 40 bytes to 4 MiB, and leaks 80 MB, under one profiler. Prints the
 * true values as JSON, for {@code xtask/bench/every-language}.
 *
 * <pre>AllocationsRun PROFILER SEED FOLDER</pre>
 */
final class AllocationsRun {
    /** Bytes of a round. */
    private static final double ROUND = 64e6;
    private static final int ROUNDS = 100;
    /** Rounds with different sizes. */
    private static final int DIFFERENT = 10;
    private static final double LEAK = 80e6;
    /** Header of a {@code byte[]}, with compressed class pointers. */
    private static final int HEADER = 16;

    private static final List<byte[]> KEPT = new ArrayList<>();
    private static byte[] sink;

    private AllocationsRun() {}

    static void sixty(int[] sizes) {
        for (int size : sizes) {
            sink = new byte[size];
        }
    }

    static void thirty(int[] sizes) {
        for (int size : sizes) {
            sink = new byte[size];
        }
    }

    static void tenth(int[] sizes) {
        for (int size : sizes) {
            sink = new byte[size];
        }
    }

    static void leak(int[] sizes) {
        for (int size : sizes) {
            KEPT.add(new byte[size]);
        }
    }

    public static void main(String[] words) throws Exception {
        Random random = new Random(Long.parseLong(words[1]));
        List<int[]> sixty = rounds(random, 0.6 * ROUND, 40, 512);
        List<int[]> thirty = rounds(random, 0.3 * ROUND, 1000, 100_000);
        List<int[]> tenth = rounds(random, 0.1 * ROUND, 200_000, 4 << 20);
        int[] leaked = drawn(random, LEAK / ROUNDS, 1000, 64_000);
        // Compiles the methods.
        for (int round = 0; round < ROUNDS / 4; round++) {
            allocate(sixty, thirty, tenth, round);
        }
        leak(new int[10_000]);
        KEPT.clear();
        KnownProfiler profiler = KnownProfiler.started(words[0], words[2]);
        for (int round = 0; round < ROUNDS; round++) {
            allocate(sixty, thirty, tenth, round);
            leak(leaked);
        }
        sink = null;
        // The profile in use has objects that a collection has seen.
        System.gc();
        profiler.end().run();
        List<String> checks = new ArrayList<>();
        if (!profiler.allocated().isEmpty()) {
            checks.add(check(profiler, "sixty", profiler.allocated(), sixty, ROUNDS / DIFFERENT));
            checks.add(check(profiler, "thirty", profiler.allocated(), thirty, ROUNDS / DIFFERENT));
            checks.add(check(profiler, "tenth", profiler.allocated(), tenth, ROUNDS / DIFFERENT));
        }
        if (!profiler.inUse().isEmpty()) {
            checks.add(check(profiler, "leak", profiler.inUse(), List.of(leaked), ROUNDS));
        }
        System.out.println("{\"checks\": [" + String.join(", ", checks) + "]}");
        System.exit(KEPT.isEmpty() ? 1 : 0);
    }

    private static void allocate(List<int[]> sixty, List<int[]> thirty, List<int[]> tenth, int round) {
        sixty(sixty.get(round % DIFFERENT));
        thirty(thirty.get(round % DIFFERENT));
        tenth(tenth.get(round % DIFFERENT));
    }

    private static String check(KnownProfiler profiler, String method, String profile, List<int[]> sizes, int times) {
        Map<Integer, Integer> counts = new TreeMap<>();
        for (int[] part : sizes) {
            for (int size : part) {
                counts.merge((size + HEADER + 7) / 8 * 8, times, Integer::sum);
            }
        }
        String counted = counts.entrySet().stream().map(one -> "[" + one.getKey() + ", " + one.getValue() + "]").collect(Collectors.joining(", "));
        return "{\"name\": \"" + method + "\", \"function\": \"" + method + "\", " + profile + ", \"interval\": " + profiler.interval()
                + ", \"sizes\": [" + counted + "]}";
    }

    /** Sizes of each different round, of this total each. */
    private static List<int[]> rounds(Random random, double total, double low, double high) {
        int[] all = drawn(random, DIFFERENT * total, low, high);
        Map<Integer, List<Integer>> parts = new HashMap<>();
        for (int at = 0; at < all.length; at++) {
            parts.computeIfAbsent(at % DIFFERENT, unused -> new ArrayList<>()).add(all[at]);
        }
        return parts.values().stream().map(part -> part.stream().mapToInt(size -> size).toArray()).toList();
    }

    /** Sizes with uniform logarithms. */
    private static int[] drawn(Random random, double total, double low, double high) {
        List<Integer> sizes = new ArrayList<>();
        double left = total;
        while (left > 0) {
            int size = (int) (low * Math.pow(high / low, random.nextDouble()));
            sizes.add(size - HEADER);
            left -= size;
        }
        return sizes.stream().mapToInt(size -> size).toArray();
    }
}
