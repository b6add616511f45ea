import java.util.ArrayList;
import java.util.List;

/**
 * Repeats the same work, alternately with and without one profiler. The measured time includes encoding and delivery, and excludes
 * the start, and the stop where that is a separate step. For each leg with the profiler it prints the profiler's own figures:
 * samples, their time on the sampled threads, and the CPU time of its own threads.
 *
 * <pre>CostRun PROFILER RATE DEPTH PAIRS MILLISECONDS ADDRESS</pre>
 */
final class CostRun {
    /** The warm-up is shorter than the measurement by this factor. */
    private static final int WARM_UP = 10;

    private record Leg(double tookNs, double samples, double onSamplesNs, double threadsNs) {}

    private CostRun() {}

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        int rate = Integer.parseInt(words[1]);
        Chain chain = new Chain(Integer.parseInt(words[2]));
        int pairs = Integer.parseInt(words[3]);
        double seconds = Integer.parseInt(words[4]) / 1e3;
        // As in a service: code compiled after the first start has more debug info.
        one(profiler, rate, words[5], chain, 5_000);
        // The number of rounds of the given time.
        long begun = Work.threadCpuNs();
        Work.fixed(chain, Work.ARITHMETIC, 2_000);
        long rounds = (long) (2_000 * seconds * 1e9 / (Work.threadCpuNs() - begun));
        // The second start needs no connection and no compilation.
        one(profiler, rate, words[5], chain, rounds);
        one(null, rate, words[5], chain, rounds);
        List<Double> ratios = new ArrayList<>();
        List<Double> cpuNs = new ArrayList<>();
        List<Double> extraNs = new ArrayList<>();
        List<Leg> legs = new ArrayList<>();
        for (int pair = 0; pair < pairs; pair++) {
            boolean first = pair % 2 == 0;
            Leg[] pairOfLegs = new Leg[2];
            for (boolean on : new boolean[] {!first, first}) {
                pairOfLegs[on ? 1 : 0] = one(on ? profiler : null, rate, words[5], chain, rounds);
            }
            ratios.add(pairOfLegs[1].tookNs / pairOfLegs[0].tookNs);
            cpuNs.add(pairOfLegs[0].tookNs);
            extraNs.add(pairOfLegs[1].tookNs - pairOfLegs[0].tookNs);
            legs.add(pairOfLegs[1]);
        }
        Answer.say("ratios", ratios);
        Answer.say("without_ns", cpuNs);
        Answer.say("extra_ns", extraNs);
        Answer.say("samples", legs.stream().map(Leg::samples).toList());
        Answer.say("on_samples_ns", legs.stream().map(Leg::onSamplesNs).toList());
        Answer.say("threads_ns", legs.stream().map(Leg::threadsNs).toList());
        System.exit(0);
    }

    private static Leg one(Profiler given, int rate, String address, Chain chain, long rounds) throws Exception {
        Profiler profiler = given == null ? new Profiler.None() : given;
        profiler.start(rate, address);
        double samples = profiler.samples();
        // Work started by the start is not measured.
        Work.fixed(chain, Work.ARITHMETIC, rounds / WARM_UP);
        double onSamplesNs = profiler.onSamplesNs();
        double threadsNs = profiler.threadsNs();
        long before = Work.processCpuNs();
        Work.fixed(chain, Work.ARITHMETIC, rounds);
        boolean hasStopped = profiler.endWindow();
        long took = Work.processCpuNs() - before;
        // Samples are counted when they are drained, so those of the warm-up cannot be distinguished.
        samples = (profiler.samples() - samples) * WARM_UP / (WARM_UP + 1);
        Leg leg = new Leg(took, samples, profiler.onSamplesNs() - onSamplesNs, profiler.threadsNs() - threadsNs);
        if (!hasStopped) {
            profiler.stop();
        }
        // Work started by the stop is not measured.
        Thread.sleep(20);
        return leg;
    }
}
