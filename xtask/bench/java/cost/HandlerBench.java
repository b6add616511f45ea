import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Cost of a sample on the sampled thread, beside async-profiler's walk in the same run, and CPU time of spanprof by its own clocks.
 * Prints Markdown.
 */
final class HandlerBench {
    /** Low enough that the program evicts the profiler from the caches in between. */
    private static final int RATE_HZ = 250;
    private static final int OWN_RATE_HZ = 100;
    private static final List<Integer> DEPTHS = List.of(20, 100);
    /** Budget of the whole handler in nanoseconds, by depth. */
    private static final Map<Integer, Integer> BUDGET_NS = Map.of(20, 8_000, 100, 12_000);
    private static final double OWN_BUDGET_PERCENT = 0.1;
    private static final String PEER = "async-profiler-with-ctimer";

    private record Case(Stack stack, String profiler) {}

    /** Form of a stack: one recursive method, or distinct methods; and the work at its leaf. */
    private record Stack(String of, String work, int depth) {}

    private static final Stack SHALLOW = new Stack("each", "arithmetic", 4);
    private static final Stack DEEP = new Stack("each", "arithmetic", 100);
    private static final List<Stack> STACKS = List.of(
            new Stack("one", "arithmetic", 20), new Stack("one", "arithmetic", 100), SHALLOW, new Stack("each", "arithmetic", 20), DEEP,
            new Stack("each", "memory", 20), new Stack("each", "memory", 100));

    private HandlerBench() {}

    public static void main(String[] words) throws Exception {
        Measuring.onEachJava(words, HandlerBench::handlers, HandlerBench::own);
    }

    private static void handlers(Measuring bench, Measuring.Java java) throws Exception {
        int rounds = bench.isShort ? 1 : 2;
        int slices = bench.isShort ? 4 : 30;
        Map<Case, List<Measuring.Said>> found = new LinkedHashMap<>();
        for (Stack stack : STACKS) {
            for (String profiler : List.of("spanprof", PEER)) {
                found.put(new Case(stack, profiler), new ArrayList<>());
            }
        }
        for (int round = 0; round < rounds; round++) {
            for (Case one : Measuring.shuffled(List.copyOf(found.keySet()))) {
                found.get(one).add(bench.child(java, one.profiler, "HandlerRun", one.stack.of, one.stack.work, one.stack.depth,
                        RATE_HZ, slices, bench.address));
            }
        }
        System.out.println("Time for which the sampled thread is stopped, µs per sample at " + RATE_HZ + " Hz, alternating in "
                + rounds + " processes each. spanprof: its whole handler, and the walk in it; async-profiler: its walk, by its own count"
                + " (`features=stats`), before it stores the stack. Frames: all of one recursive method, or each of a distinct"
                + " method, half of them inlined. `memory` works in 32 MB at random, so nothing of a profiler is cached when it is called;"
                + " `arithmetic` touches almost no memory. Depth 4: cost of a sample with a minimal stack. Medians are of readings of"
                + " 10 samples each; means include the time of other programs.\n");
        List<List<?>> rows = new ArrayList<>();
        for (Stack stack : STACKS) {
            List<Measuring.Said> ours = found.get(new Case(stack, "spanprof"));
            List<Measuring.Said> peers = found.get(new Case(stack, PEER));
            Integer budget = BUDGET_NS.get(stack.depth);
            rows.add(List.of(stack.of.equals("one") ? "one method" : "each its own", stack.work, stack.depth,
                    Measuring.inWords("%.2f", slices(ours)), means(ours), budget == null ? "–" : "≤ " + budget / 1000,
                    Measuring.inWords("%.2f", walks(ours)), Measuring.inWords("%.2f", slices(peers)), means(peers),
                    Measuring.format("%.2f", Measuring.median(walks(ours)) / Measuring.median(slices(peers)))));
        }
        Measuring.table(List.of("frames", "work", "depth", "spanprof, handler: median (95 % interval)", "means", "budget",
                "its walk: median (95 % interval)", "async-profiler, walk: median (95 % interval)", "means",
                "walk over walk (budget: below 1)"), rows);
        double ours = perFrame(found, "spanprof");
        double peers = perFrame(found, PEER);
        System.out.println(Measuring.format("Each further frame of a distinct method, by the difference between depths 4 and 100:"
                + " spanprof %.0f ns, its walk; async-profiler %.0f ns; ratio %.2f (budget: below 1).%n",
                ours, peers, ours / peers));
    }

    /** Nanoseconds. */
    private static double perFrame(Map<Case, List<Measuring.Said>> found, String profiler) {
        double shallow = Measuring.median(ofWalk(found, SHALLOW, profiler));
        double deep = Measuring.median(ofWalk(found, DEEP, profiler));
        return 1000 * (deep - shallow) / (DEEP.depth - SHALLOW.depth);
    }

    private static List<Double> ofWalk(Map<Case, List<Measuring.Said>> found, Stack stack, String profiler) {
        List<Measuring.Said> runs = found.get(new Case(stack, profiler));
        return profiler.equals(PEER) ? slices(runs) : walks(runs);
    }

    private static List<Double> slices(List<Measuring.Said> runs) {
        return runs.stream().flatMap(run -> run.all("slices_ns").stream()).map(ns -> ns / 1000).toList();
    }

    private static List<Double> walks(List<Measuring.Said> runs) {
        return runs.stream().flatMap(run -> run.all("walks_ns").stream()).map(ns -> ns / 1000).toList();
    }

    private static String means(List<Measuring.Said> runs) {
        return String.join(", ", runs.stream().map(run -> Measuring.format("%.2f", run.number("mean_ns") / 1000)).toList());
    }

    private static void own(Measuring bench, Measuring.Java java) throws Exception {
        int seconds = bench.isShort ? 2 : 19;
        List<List<?>> rows = new ArrayList<>();
        for (int depth : DEPTHS) {
            Measuring.Said run = bench.child(java, "spanprof", "OwnRun", OWN_RATE_HZ, depth, seconds, bench.address);
            double samples = run.number("samples");
            double handler = run.number("handler_ns");
            double threads = run.number("threads_ns");
            rows.add(List.of(OWN_RATE_HZ, depth, run.text("clock"), run.text("samples"), run.text("windows"),
                    Measuring.format("%.2f", handler / samples / 1000), Measuring.format("%.2f", threads / samples / 1000),
                    Measuring.format("%.3f", 100 * (handler + threads) / run.number("work_ns")), "≤ " + OWN_BUDGET_PERCENT,
                    Measuring.format("%.1f", run.number("beginning_ns") / 1e6)));
        }
        System.out.println("spanprof by its own clocks, " + seconds + " s of CPU time of `arithmetic`, windows of 10 s encoded and sent: "
                + "the handler's time and the CPU time of its threads, divided by that of the program.\n");
        Measuring.table(List.of("Hz", "depth", "clock", "samples", "windows", "handler, µs per sample", "own threads, µs per sample",
                "own CPU, % of a core", "budget", "own threads until then, 2 s, ms"), rows);
    }
}
