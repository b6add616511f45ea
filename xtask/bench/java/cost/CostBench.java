import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * CPU time of the same work with and without each profiler, delivery included, in pairs inside one process. Also the cost of a
 * sample at 1000 Hz, by part. Prints Markdown.
 */
final class CostBench {
    private static final int RATE_HZ = 100;
    private static final double BUDGET = 1.005;
    private static final int HIGH_RATE_HZ = 1000;
    private static final List<String> BY_SAMPLE = List.of("spanprof", "async-profiler-with-stats");

    private CostBench() {}

    /** In the order of the table. */
    static List<String> profilers(Measuring.Java java) {
        List<String> all = new ArrayList<>(List.of("none", "spanprof", "async-profiler", "pyroscope", "jfr"));
        if (java.isAtLeast(25)) {
            all.add("jfr-with-cpu-time");
        }
        return all;
    }

    public static void main(String[] words) throws Exception {
        try (Measuring bench = new Measuring(words)) {
            int processes = bench.isShort ? 1 : 2;
            int pairs = bench.isShort ? 2 : 6;
            int milliseconds = bench.isShort ? 100 : 500;
            System.out.println("CPU time of the whole process with the profiler, divided by that without; " + processes + " processes of " + pairs
                    + " pairs; each leg is " + milliseconds + " ms of work and one window, encoded and delivered: windows end "
                    + 10_000 / milliseconds + " times as often as by default. `none` shows the machine's noise.\n");
            for (Measuring.Java java : bench.javas) {
                System.out.println("### Java " + java.name() + "\n");
                pairs(bench, java, processes, pairs, milliseconds);
                samples(bench, java, processes, pairs, 4 * milliseconds);
            }
        }
    }

    private record Case(String profiler, int depth) {}

    private static void pairs(Measuring bench, Measuring.Java java, int processes, int pairs, int milliseconds) throws Exception {
        Map<Case, List<Double>> found = new LinkedHashMap<>();
        profilers(java).forEach(profiler -> found.put(new Case(profiler, 20), new ArrayList<>()));
        List.of("none", "spanprof", "async-profiler").forEach(profiler -> found.put(new Case(profiler, 100), new ArrayList<>()));
        for (int process = 0; process < processes; process++) {
            for (Case one : Measuring.shuffled(List.copyOf(found.keySet()))) {
                Measuring.Said run =
                        bench.child(java, one.profiler, "CostRun", RATE_HZ, one.depth, pairs, milliseconds, bench.address);
                found.get(one).addAll(run.all("ratios"));
            }
        }
        List<List<?>> rows = new ArrayList<>();
        found.forEach((one, ratios) -> {
            double[] all = Measuring.interval(ratios);
            rows.add(List.of(one.profiler, RATE_HZ, one.depth, Measuring.format("%.4f", all[0]),
                    Measuring.format("%.4f … %.4f", all[1], all[2]), one.profiler.equals("spanprof") ? "≤ " + BUDGET : "–"));
        });
        Measuring.table(List.of("profiler", "Hz", "depth", "ratio, median", "95 % interval", "budget"), rows);
    }

    private static void samples(Measuring bench, Measuring.Java java, int processes, int pairs, int milliseconds) throws Exception {
        Map<Case, List<Measuring.Said>> found = new LinkedHashMap<>();
        BY_SAMPLE.forEach(profiler -> found.put(new Case(profiler, 20), new ArrayList<>()));
        for (int process = 0; process < processes; process++) {
            for (Case one : Measuring.shuffled(List.copyOf(found.keySet()))) {
                found.get(one).add(bench.child(java, one.profiler, "CostRun", HIGH_RATE_HZ, one.depth, pairs, milliseconds, bench.address));
            }
        }
        System.out.println("CPU time of a sample at " + HIGH_RATE_HZ + " Hz, µs, " + processes + " processes of " + pairs + " pairs of "
                + milliseconds + " ms of work: median (95 % interval). All: the whole process with the profiler minus that without,"
                + " end and delivery of a window included. On its thread: spanprof's whole handler; async-profiler's walk, by its own"
                + " count (`features=stats`). Own threads: by their CPU clocks. The rest: the kernel's delivery of a sample, cache"
                + " misses caused by it, and async-profiler's work besides walking.\n");
        List<List<?>> rows = new ArrayList<>();
        found.forEach((one, runs) -> {
            List<Double> samples = all(runs, "samples");
            List<Double> whole = perSample(all(runs, "extra_ns"), samples);
            List<Double> handler = perSample(all(runs, "on_samples_ns"), samples);
            List<Double> threads = perSample(all(runs, "threads_ns"), samples);
            List<Double> rest = new ArrayList<>();
            for (int pair = 0; pair < whole.size(); pair++) {
                double ofThreads = threads.get(pair).isNaN() ? 0 : threads.get(pair);
                rest.add(whole.get(pair) - handler.get(pair) - ofThreads);
            }
            boolean saysThreads = !threads.get(0).isNaN();
            rows.add(List.of(one.profiler, Measuring.format("%.0f", Measuring.median(samples)), Measuring.inWords("%.3f", all(runs, "ratios")),
                    Measuring.inWords("%.1f", whole), Measuring.inWords("%.1f", handler),
                    saysThreads ? Measuring.inWords("%.1f", threads) : "–", Measuring.inWords("%.1f", rest)));
        });
        Measuring.table(List.of("profiler", "samples of a leg", "ratio", "all", "on its thread", "own threads", "the rest"), rows);
    }

    private static List<Double> all(List<Measuring.Said> runs, String name) {
        return runs.stream().flatMap(run -> run.all(name).stream()).toList();
    }

    /** In microseconds. */
    private static List<Double> perSample(List<Double> ns, List<Double> samples) {
        List<Double> all = new ArrayList<>();
        for (int pair = 0; pair < ns.size(); pair++) {
            all.add(ns.get(pair) / samples.get(pair) / 1000);
        }
        return all;
    }
}
