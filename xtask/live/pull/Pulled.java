import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;

/** The Java counterpart of program.py. */
public final class Pulled {
    private static final Map<String, String> SPAN = Map.of(
            "endpoint", "/cart", "trace_id", "0af7651916cd43dd8448eb211c80319c", "span_id", "b7ad6b7169203331");
    private static final ArrayDeque<byte[]> KEPT = new ArrayDeque<>();
    private static double sum;

    private Pulled() {}

    static double burn() {
        double total = 0;
        for (int number = 0; number < 2_000_000; number++) {
            total += Math.sqrt(number + total);
        }
        return total;
    }

    static synchronized void allocate() {
        KEPT.add(new byte[20_000]);
        if (KEPT.size() > 200) {
            KEPT.removeFirst();
        }
    }

    static synchronized void waitForLock() {
        sum += burn();
    }

    public static void main(String[] words) throws Exception {
        Spanprof.start(SpanprofConfig.builder().pull("127.0.0.1:0").pullToken("live-token").destinations(List.of())
                .serviceName("live-pull").profiles("all").heapInterval(4096).uploadInterval(Duration.ofSeconds(3)).build());
        Runnable work = () -> {
            while (true) {
                Spanprof.tagWrapper(SPAN, () -> {
                    waitForLock();
                    allocate();
                    return null;
                });
            }
        };
        for (int number = 0; number < 2; number++) {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("address " + Spanprof.stats().get("pull.address"));
        // The time limit of the suite.
        Thread.sleep(300_000);
        System.out.println(sum);
    }
}
