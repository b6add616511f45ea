import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** CPU of the same work with and without each profiler, delivery included, in pairs inside one process. Prints Markdown. */
final class CostBench {
    private static final int RATE_HZ = 100;
    private static final double BUDGET = 1.005;

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
            System.out.println("CPU of the whole process with the profiler over without, " + processes + " processes of " + pairs
                    + " pairs; each leg is " + milliseconds + " ms of work and one window, encoded and delivered: a window's end comes "
                    + 10_000 / milliseconds + " times as often as by default. `none` shows what the machine's noise makes of nothing.\n");
            for (Measuring.Java java : bench.javas) {
                System.out.println("### Java " + java.name() + "\n");
                pairs(bench, java, processes, pairs, milliseconds);
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
}
