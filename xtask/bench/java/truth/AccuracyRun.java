import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Spends CPU time in methods of known shares under a profiler. Prints the true values by the thread's CPU clock as JSON, for
 * {@code xtask/bench/every-language}. {@code cycle-N}: a part of 30 % of each N ms of CPU time.
 *
 * <pre>AccuracyRun "spanprof|async-profiler, mix|cycle-N|native|inlined, RATE" NUMBER FOLDER</pre>
 */
final class AccuracyRun {
    private static final int DEPTH = 20;
    private static final double CPU_SECONDS = 10;

    private AccuracyRun() {}

    public static void main(String[] words) throws Exception {
        String[] row = words[0].split(", ");
        boolean isInlined = row[1].equals("inlined");
        List<Work.Part> parts = Work.parts(row[1]);
        Chain chain = new Chain(DEPTH);
        // Compiled before the measurement.
        spend(row[1], chain, parts, 2, new long[parts.size()]);
        KnownProfiler profiler = KnownProfiler.started(row[0] + ", " + row[2], words[2]);
        long[] burnt = new long[parts.size()];
        long begun = Work.threadCpuNs();
        spend(row[1], chain, parts, CPU_SECONDS, burnt);
        double whole = Work.threadCpuNs() - begun;
        profiler.end().run();
        String[] methods = isInlined ? InlinedWork.METHODS : parts.stream().map(Work.Part::method).toArray(String[]::new);
        long[] each = isInlined ? InlinedWork.truth() : burnt;
        double sum = 0;
        for (long ns : each) {
            sum += ns;
        }
        double samples = whole / 1e9 * Integer.parseInt(row[2]);
        List<String> checks = new ArrayList<>();
        checks.add(check(profiler, "AccuracyRun.spend", whole, 0.001 * whole));
        for (int part = 0; part < each.length; part++) {
            double share = each[part] / sum;
            // Inlined methods are measured alone: exact to one or two percent.
            double least = (isInlined ? 0.01 : 0.001) * share * whole;
            checks.add(check(profiler, methods[part], share * whole, Math.max(whole * Math.sqrt(share * (1 - share) / samples), least)));
        }
        System.out.println("{\"checks\": [" + String.join(", ", checks) + "]}");
        System.exit(0);
    }

    private static String check(KnownProfiler profiler, String method, double truth, double error) {
        return String.format(Locale.ROOT, "{\"name\": \"%s\", \"function\": \"%s\", %s, \"truth\": %.0f, \"error\": %.0f}",
                method, method, profiler.cpu(), truth, error);
    }

    private static void spend(String kind, Chain chain, List<Work.Part> parts, double cpuSeconds, long[] burnt) {
        if (kind.equals("inlined")) {
            InlinedWork.mix(cpuSeconds);
        } else if (kind.startsWith(Work.CYCLE)) {
            Work.periodic(chain, parts, cpuSeconds, burnt);
        } else {
            Work.mix(chain, parts, cpuSeconds, burnt);
        }
    }
}
