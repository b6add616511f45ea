import java.util.ArrayList;
import java.util.List;

/**
 * Time of a sample on its stopped thread, by the profiler's own count. spanprof counts its whole handler and the walk in it;
 * async-profiler counts the walk alone.
 *
 * <pre>HandlerRun PROFILER one|each arithmetic|memory DEPTH RATE SLICES ADDRESS</pre>
 */
final class HandlerRun {
    /** Few samples, so most readings contain no preemption. */
    private static final int SAMPLES_PER_SLICE = 10;

    private HandlerRun() {}

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        List<Work.Part> parts = Work.parts(words[2]);
        Chain chain = new Chain(Integer.parseInt(words[3]), words[1].equals("one"));
        int rate = Integer.parseInt(words[4]);
        // As in a service: code compiled after the first start has more debug info.
        if (profiler instanceof AsyncProfilerPeer peer) {
            peer.startMeasuringWalks(rate);
        } else {
            profiler.start(rate, words[6]);
        }
        Work.mix(chain, parts, 2);
        settle(profiler);
        double nsBefore = profiler.onSamplesNs();
        double samplesBefore = profiler.samples();
        List<Double> slices = new ArrayList<>();
        List<Double> walks = new ArrayList<>();
        for (int slice = 0; slice < Integer.parseInt(words[5]); slice++) {
            double ns = profiler.onSamplesNs();
            double walkNs = profiler.walksNs();
            double cpuNs = Work.threadCpuNs();
            Work.mix(chain, parts, (double) SAMPLES_PER_SLICE / rate);
            double periods = (Work.threadCpuNs() - cpuNs) / 1e9 * rate;
            slices.add((profiler.onSamplesNs() - ns) / periods);
            walks.add((profiler.walksNs() - walkNs) / periods);
        }
        settle(profiler);
        double samples = profiler.samples() - samplesBefore;
        Answer.say("slices_ns", slices);
        if (profiler instanceof OwnProfiler) {
            Answer.say("walks_ns", walks);
        }
        Answer.say("samples", samples);
        Answer.say("mean_ns", (profiler.onSamplesNs() - nsBefore) / samples);
        profiler.stop();
    }

    /** Waits until all samples so far are counted. */
    private static void settle(Profiler profiler) throws Exception {
        if (profiler instanceof OwnProfiler) {
            profiler.endWindow();
        }
    }
}
