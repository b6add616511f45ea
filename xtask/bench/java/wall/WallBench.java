import java.util.ArrayList;
import java.util.List;

/** Wall-clock profile of 50 threads with known work, and cost of sampling 500 waiting threads. Prints Markdown. */
final class WallBench {
    private static final int RATE_HZ = 20;
    private static final double[] TRUTH = {20, 40, 40};
    private static final double BUDGET_POINTS = 1;
    private static final double CPU_BUDGET_PERCENT = 1;
    private static final List<String> PROFILERS = List.of("spanprof", "async-profiler", "pyroscope");

    private WallBench() {}

    public static void main(String[] words) throws Exception {
        try (Measuring bench = new Measuring(words)) {
            for (Measuring.Java java : bench.javas) {
                System.out.println("### Java " + java.name() + "\n");
                shares(bench, java);
                idle(bench, java);
            }
        }
    }

    private static void shares(Measuring bench, Measuring.Java java) throws Exception {
        int seconds = bench.isShort ? 2 : 10;
        List<List<?>> rows = new ArrayList<>();
        for (String profiler : Measuring.shuffled(PROFILERS)) {
            Measuring.Said said =
                    bench.child(java, profiler, "WallRun", "mixed", 50, RATE_HZ, seconds, bench.folder().resolve(java.name() + profiler));
            List<Double> seen = said.all("seen_ns");
            double all = seen.stream().mapToDouble(ns -> ns).sum();
            double worst = 0;
            List<String> shares = new ArrayList<>();
            for (int kind = 0; kind < TRUTH.length; kind++) {
                double share = 100 * seen.get(kind) / all;
                shares.add(Measuring.format("%.1f", share));
                worst = Math.max(worst, Math.abs(share - TRUTH[kind]));
            }
            rows.add(List.of(profiler, RATE_HZ, said.text("samples"), String.join(" / ", shares), Measuring.format("%.2f", worst),
                    profiler.equals("spanprof") ? "≤ " + BUDGET_POINTS : "–",
                    Measuring.format("%+.1f", 100 * (all / (said.number("really_ns") * 50) - 1))));
        }
        System.out.println("50 threads: 10 compute on two processors, 20 sleep, 20 read from a socket; " + seconds
                + " s. True shares: 20 / 40 / 40.\n");
        Measuring.table(List.of("profiler", "Hz", "samples", "shares shown, %", "worst error, points", "budget", "threads' time, % off"), rows);
    }

    private static void idle(Measuring bench, Measuring.Java java) throws Exception {
        int seconds = bench.isShort ? 1 : 8;
        List<List<?>> rows = new ArrayList<>();
        List<List<Object>> cases = new ArrayList<>(List.of(List.of("none", "–")));
        for (String profiler : PROFILERS) {
            cases.add(List.of(profiler, RATE_HZ));
            cases.add(List.of(profiler, 100));
        }
        double bare = 0;
        for (List<Object> one : cases) {
            Measuring.Said said = bench.child(java, (String) one.get(0), "WallRun", "idle", 500, one.get(1), seconds,
                    bench.folder().resolve(java.name() + "idle" + one.get(0) + one.get(1)));
            double percent = said.number("cpu_percent");
            bare = one.get(0).equals("none") ? percent : bare;
            rows.add(List.of(one.get(0), one.get(1), Measuring.format("%.2f", percent), Measuring.format("%.2f", percent - bare),
                    one.get(0).equals("spanprof") ? "≤ " + CPU_BUDGET_PERCENT : "–"));
        }
        System.out.println("500 threads that sleep or read from sockets: CPU time of the whole process over " + seconds + " s, % of a core.\n");
        Measuring.table(List.of("profiler", "Hz", "CPU, %", "less that without, %", "budget"), rows);
    }
}
