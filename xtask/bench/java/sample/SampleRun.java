import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/**
 * Time of a sample on its stopped thread, by the profiler's own count, as JSON for {@code xtask/bench/every-language}. spanprof counts
 * its whole handler and the walk in it; async-profiler counts the walk alone, before it stores the stack. {@code memory} works in 32 MB
 * at random, so nothing of a profiler is cached when it is called.
 *
 * <pre>SampleRun "DEPTH frames, arithmetic|memory, spanprof|async-profiler" ADDRESS SECONDS</pre>
 */
final class SampleRun {
    /** Low enough that the program evicts the profiler from the caches in between. */
    private static final int RATE_HZ = 250;
    /** Few samples between two readings, so most contain no preemption. */
    private static final int SAMPLES_PER_SLICE = 10;

    private interface Counter {
        double read() throws Exception;
    }

    /** A running profiler; nanoseconds so far. {@code threads} is the CPU time of its own threads. */
    private record Counters(Counter onSamples, Counter walks, Counter threads) {}

    private SampleRun() {}

    public static void main(String[] words) throws Exception {
        String[] row = words[0].split(" frames, |, ");
        List<Work.Part> parts = Work.parts(row[1]);
        Chain chain = new Chain(Integer.parseInt(row[0]));
        Counters profiler = row[2].equals("spanprof") ? Own.started(words[1]) : asyncProfiler();
        // As in a service: code compiled after the first start has more debug info.
        Work.mix(chain, parts, 2);
        List<Double> onSamples = new ArrayList<>();
        List<Double> walks = new ArrayList<>();
        List<Double> threads = new ArrayList<>();
        for (long slices = RATE_HZ * Long.parseLong(words[2]) / SAMPLES_PER_SLICE; slices > 0; slices--) {
            double[] before = read(profiler);
            double cpuNs = Work.threadCpuNs();
            Work.mix(chain, parts, (double) SAMPLES_PER_SLICE / RATE_HZ);
            double microsOfSamples = (Work.threadCpuNs() - cpuNs) / 1e6 * RATE_HZ;
            double[] after = read(profiler);
            onSamples.add((after[0] - before[0]) / microsOfSamples);
            walks.add((after[1] - before[1]) / microsOfSamples);
            threads.add((after[2] - before[2]) / microsOfSamples);
        }
        String figures = String.format(Locale.ROOT, "\"its walk, µs\": %.3f", median(walks));
        if (row[2].equals("spanprof")) {
            double mean = threads.stream().mapToDouble(micros -> micros).average().orElse(0);
            figures += String.format(Locale.ROOT, ", \"handler, µs\": %.3f, \"own threads, µs\": %.3f", median(onSamples), mean);
        }
        System.out.println("{" + figures + "}");
        System.exit(0);
    }

    private static double[] read(Counters profiler) throws Exception {
        return new double[] {profiler.onSamples.read(), profiler.walks.read(), profiler.threads.read()};
    }

    private static double median(List<Double> values) {
        Collections.sort(values);
        return values.get(values.size() / 2);
    }

    private static Counters asyncProfiler() throws Exception {
        AsyncProfilerPeer peer = new AsyncProfilerPeer();
        peer.execute("start,event=ctimer,interval=" + 1_000_000_000L / RATE_HZ + ",features=stats");
        return new Counters(() -> 0, () -> peer.metric("stackwalk_ns_total"), () -> 0);
    }

    /** Loaded with the JAR of spanprof only. */
    private static final class Own {
        static Counters started(String address) {
            OwnProfiler.started(Spanprof.start(SpanprofConfig.builder().serviceName("bench").heap(false).gc(false).sampleRate(RATE_HZ)
                    .maxStackDepth(256).endpoint(address).uploadInterval(Duration.ofSeconds(5)).build()));
            return new Counters(() -> OwnProfiler.counter("clock.handler_ns"), () -> OwnProfiler.counter("clock.walk_ns"),
                    () -> OwnProfiler.counter("cost.own_cpu_ns"));
        }
    }
}
