import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/** The Java counterpart of program.py: a service of many requests, each with its own trace and span. */
public final class Requests {
    private static final String TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
    private static final String SPAN_ID = "b7ad6b7169203331";
    private static final double SPAN_CPU_SECONDS = 0.3;
    private static final double REQUEST_CPU_SECONDS = 0.004;

    private Requests() {}

    /** Uses CPU time of this thread; the profile must attribute it to this name. */
    static double burn(double cpuSeconds) {
        long until = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + (long) (cpuSeconds * 1e9);
        double total = 0;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < until) {
            for (int number = 0; number < 10_000; number++) {
                total += Math.sqrt(number + total);
            }
        }
        return total;
    }

    private static Map<String, String> labels(int number) {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        String traceId = String.format("%016x%016x", random.nextLong() | 1, random.nextLong());
        String spanId = String.format("%016x", random.nextLong() | 1);
        return Map.of("endpoint", number % 3 == 0 ? "/pay" : "/cart", "trace_id", traceId, "span_id", spanId);
    }

    public static void main(String[] words) throws Exception {
        Spanprof.start(SpanprofConfig.builder().endpoint(words[0]).protocol(words[1]).serviceName(words[2])
                .sampleRate(250).uploadInterval(Duration.ofSeconds(60)).build());
        Map<String, String> first = Map.of("endpoint", "/cart", "trace_id", TRACE_ID, "span_id", SPAN_ID);
        double sum = Spanprof.tagWrapper(first, () -> burn(SPAN_CPU_SECONDS));
        for (int number = 1; number < Integer.parseInt(words[3]); number++) {
            sum += Spanprof.tagWrapper(labels(number), () -> burn(REQUEST_CPU_SECONDS));
        }
        boolean delivered = Spanprof.flush(Duration.ofSeconds(20));
        Map<String, ?> stats = Spanprof.stats();
        Spanprof.stop();
        if (!delivered) {
            throw new IllegalStateException("not delivered: " + stats.get("export.0.last_error"));
        }
        Files.writeString(Path.of(words[4]), String.valueOf(stats.get("samples.cpu_ns")));
        System.out.println("burnt " + (sum > 0));
    }
}
