import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Arrays;

/**
 * Cost of labelling almost no work, repeatedly, while spanprof runs, as JSON for {@code xtask/bench/every-language}.
 *
 * <pre>LabelRun "platform|virtual, FORM" ADDRESS SECONDS</pre>
 */
final class LabelRun {
    private static final int TIMES = 2_000;

    static double sink;

    private LabelRun() {}

    public static void main(String[] words) throws Exception {
        OwnProfiler.started(Spanprof.start(SpanprofConfig.builder().serviceName("bench").endpoint(words[1]).build()));
        String[] row = words[0].split(", ");
        LabelForms form = LabelForms.named(row[1]);
        long ns = 100_000_000L * Long.parseLong(words[2]);
        Runnable measured = () -> {
            // Compiled first, then recompiled for the calls as they are now.
            median(form, ns);
            median(form, ns);
            System.out.println("{\"ns\": " + median(form, ns) + "}");
        };
        if (row[0].equals("virtual")) {
            Threads.virtual().submit(measured).get();
        } else {
            measured.run();
        }
        System.exit(0);
    }

    /** Nanoseconds per call, of the middle batch. */
    private static double median(LabelForms form, long forNs) {
        double[] each = new double[1 << 20];
        int batches = 0;
        for (long end = System.nanoTime() + forNs; System.nanoTime() < end && batches < each.length; batches++) {
            long begun = System.nanoTime();
            form.run(TIMES);
            each[batches] = (double) (System.nanoTime() - begun) / TIMES;
        }
        Arrays.sort(each, 0, batches);
        return each[batches / 2];
    }
}
