import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.time.Duration;
import java.util.Map;
import java.util.stream.Collectors;

/** The Java counterpart of buffered.py. */
public final class Buffered {
    private static final String PREFIX = "export.0.";
    private static double sum;

    private Buffered() {}

    static void work() {
        for (int number = 0; number < 1_000_000; number++) {
            sum += Math.sqrt(number + sum);
        }
    }

    static void report() {
        String counters = Spanprof.stats().entrySet().stream().filter(entry -> entry.getKey().startsWith(PREFIX))
                .filter(entry -> entry.getValue() instanceof Number)
                .map(entry -> "\"" + entry.getKey().substring(PREFIX.length()) + "\": " + entry.getValue())
                .collect(Collectors.joining(", ", "{", "}"));
        System.out.println(counters);
    }

    public static void main(String[] words) throws InterruptedException {
        Spanprof.start(SpanprofConfig.builder().serviceName("live-buffer").endpoint("http://127.0.0.1:" + words[0])
                .bufferDirectory(words[1]).uploadInterval(Duration.ofSeconds(1)).timeout(Duration.ofSeconds(2))
                .cpuBudget(0).build());
        for (int turn = 0;; turn++) {
            Spanprof.tagWrapper(Map.of("endpoint", "/orders/" + turn % 50), Buffered::work);
            Thread.sleep(20);
            if (turn % 10 == 0) {
                report();
            }
        }
    }
}
