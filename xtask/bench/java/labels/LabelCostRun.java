import java.util.ArrayList;
import java.util.List;

/**
 * Cost of labelling almost no work, repeatedly, while the profiler runs.
 *
 * <pre>LabelCostRun PROFILER FORM platform|virtual MILLISECONDS ADDRESS</pre>
 */
final class LabelCostRun {
    private static final int TIMES = 2_000;
    private static final int RATE_HZ = 100;

    private LabelCostRun() {}

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        profiler.start(RATE_HZ, words[4]);
        LabelForm form = LabelForm.named(words[0], words[1]);
        long ns = 1_000_000L * Long.parseLong(words[3]);
        Runnable measured = () -> {
            // Compiled first, then recompiled for the calls as they are now.
            batches(form, ns);
            batches(form, ns);
            Answer.say("ns", batches(form, ns));
        };
        if (words[2].equals("virtual")) {
            Threads.virtual().submit(measured).get();
        } else {
            measured.run();
        }
        System.exit(0);
    }

    /** Nanoseconds per call, batch by batch. */
    private static List<Double> batches(LabelForm form, long forNs) {
        List<Double> each = new ArrayList<>();
        for (long end = System.nanoTime() + forNs; System.nanoTime() < end;) {
            long begun = System.nanoTime();
            form.run(TIMES);
            each.add((double) (System.nanoTime() - begun) / TIMES);
            form.settle();
        }
        return each;
    }
}
