import java.util.ArrayList;
import java.util.List;

/**
 * The same work again and again, by turns with and without one profiler. What was sampled is encoded and delivered inside the
 * measured time; starting, and stopping where that is another thing, are not.
 *
 * <pre>CostRun PROFILER RATE DEPTH PAIRS MILLISECONDS ADDRESS</pre>
 */
final class CostRun {
    private CostRun() {}

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        int rate = Integer.parseInt(words[1]);
        Chain chain = new Chain(Integer.parseInt(words[2]));
        int pairs = Integer.parseInt(words[3]);
        double seconds = Integer.parseInt(words[4]) / 1e3;
        // As in a service: what is compiled after the first start tells more of itself.
        one(profiler, rate, words[5], chain, 5_000);
        // As many rounds as last so long.
        long begun = Work.threadCpuNs();
        Work.fixed(chain, Work.ARITHMETIC, 2_000);
        long rounds = (long) (2_000 * seconds * 1e9 / (Work.threadCpuNs() - begun));
        // The second start connects no more, and nothing is left to compile.
        one(profiler, rate, words[5], chain, rounds);
        one(null, rate, words[5], chain, rounds);
        List<Double> ratios = new ArrayList<>();
        List<Double> cpuNs = new ArrayList<>();
        for (int pair = 0; pair < pairs; pair++) {
            boolean first = pair % 2 == 0;
            double[] took = new double[2];
            for (boolean on : new boolean[] {!first, first}) {
                took[on ? 1 : 0] = one(on ? profiler : null, rate, words[5], chain, rounds);
            }
            ratios.add(took[1] / took[0]);
            cpuNs.add(took[0]);
        }
        Answer.say("ratios", ratios);
        Answer.say("without_ns", cpuNs);
        System.exit(0);
    }

    private static double one(Profiler profiler, int rate, String address, Chain chain, long rounds) throws Exception {
        if (profiler != null) {
            profiler.start(rate, address);
        }
        // What starting sets off comes before.
        Work.fixed(chain, Work.ARITHMETIC, rounds / 10);
        long before = Work.processCpuNs();
        Work.fixed(chain, Work.ARITHMETIC, rounds);
        boolean hasStopped = profiler != null && profiler.endWindow();
        long took = Work.processCpuNs() - before;
        if (profiler != null && !hasStopped) {
            profiler.stop();
        }
        // What stopping sets off comes afterwards.
        Thread.sleep(20);
        return took;
    }
}
