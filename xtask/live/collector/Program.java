import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

/** The Java counterpart of program.py: fixed work under a fixed label and span; sends its profile over one transport. */
public final class Program {
    private static final String TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
    private static final String SPAN_ID = "b7ad6b7169203331";

    private Program() {}

    /** Uses this CPU time of the thread; the profile must attribute it to this name. */
    static double burn(double cpuSeconds) {
        long until = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + (long) (cpuSeconds * 1e9);
        double total = 0;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < until) {
            for (int number = 0; number < 100_000; number++) {
                total += Math.sqrt(number + total);
            }
        }
        return total;
    }

    public static void main(String[] words) throws Exception {
        String endpoint = words[0] + (words[1].equals("grpc") ? "" : "/v1development/profiles");
        Spanprof.start(SpanprofConfig.builder().endpoint(endpoint).protocol(words[1]).compression(words[2])
                .serviceName(words[3]).uploadInterval(Duration.ofSeconds(60)).tags(Map.of("region", "eu")).build());
        Map<String, String> request = Map.of("endpoint", "/cart", "trace_id", TRACE_ID, "span_id", SPAN_ID);
        double sum = Spanprof.tagWrapper(request, () -> burn(1.0)) + burn(0.5);
        if (!Spanprof.flush(Duration.ofSeconds(10))) {
            throw new IllegalStateException("not delivered: " + Spanprof.stats());
        }
        for (int i = 4; i < words.length; i++) {
            Files.writeString(Path.of(words[i]), String.valueOf(Spanprof.stats().get("samples.cpu_ns")));
        }
        Spanprof.stop();
        System.out.println("burnt " + (sum > 0));
    }
}
