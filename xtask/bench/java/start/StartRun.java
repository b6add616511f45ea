import java.util.ArrayList;
import java.util.List;

/**
 * One profiler in a fresh, warmed-up process: durations of its starts and stops, and pauses of other threads meanwhile and at a
 * window's end.
 *
 * <pre>StartRun PROFILER RATE SECONDS ADDRESS</pre>
 */
final class StartRun {
    private static final int LATER_STARTS = 5;

    private StartRun() {}

    public static void main(String[] words) throws Exception {
        int rate = Integer.parseInt(words[1]);
        double seconds = Double.parseDouble(words[2]);
        Chain chain = new Chain(20);
        Work.mix(chain, Work.ARITHMETIC, 1);
        try (Gaps gaps = new Gaps()) {
            Thread.sleep(50);
            gaps.takeMs();
            Thread.sleep(300);
            Answer.say("gap_before_ms", gaps.takeMs());
            long begun = System.nanoTime();
            Profiler profiler = Profiler.named(words[0]);
            profiler.start(rate, words[3]);
            Answer.say("first_ms", (System.nanoTime() - begun) / 1e6);
            Answer.say("gap_start_ms", gaps.takeMs());
            Work.mix(chain, Work.ARITHMETIC, seconds / 2);
            gaps.takeMs();
            boolean hasStopped = profiler.endWindow();
            Answer.say("gap_window_ms", gaps.takeMs());
            List<Double> starts = new ArrayList<>();
            List<Double> stops = new ArrayList<>();
            for (int time = 0; time < LATER_STARTS; time++) {
                begun = System.nanoTime();
                if (!hasStopped) {
                    profiler.stop();
                }
                stops.add((System.nanoTime() - begun) / 1e6);
                Work.mix(chain, Work.ARITHMETIC, 0.05);
                begun = System.nanoTime();
                profiler.start(rate, words[3]);
                starts.add((System.nanoTime() - begun) / 1e6);
                hasStopped = false;
                Work.mix(chain, Work.ARITHMETIC, 0.1);
            }
            Answer.say("later_ms", starts);
            Answer.say("stop_ms", stops.subList(1, stops.size()));
        }
        System.exit(0);
    }
}
