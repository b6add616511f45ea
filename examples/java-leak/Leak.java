import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * A program that leaks: each request adds to a cache that nothing empties. Sessions expire after two windows. Writes the heap of
 * eight windows into a directory.
 *
 * <pre>
 * java -cp spanprof-0.1.0.jar Leak.java profiles
 * spanprof top profiles --type inuse_space --label age=old
 * </pre>
 */
public class Leak {
    private static final Map<Integer, byte[]> CACHE = new HashMap<>();
    private static final ArrayDeque<byte[]> SESSIONS = new ArrayDeque<>();

    static void remember(int request) {
        CACHE.put(request, new byte[20_000]);
    }

    static void openSession() {
        if (SESSIONS.size() == 1_000) {
            SESSIONS.poll();
        }
        SESSIONS.add(new byte[40_000]);
    }

    static String render(int request) {
        return IntStream.range(0, 1_000).mapToObj(item -> "<li>" + request + " " + item + "</li>")
                .collect(Collectors.joining());
    }

    static void serve(int first, int count) {
        for (int request = first; request < first + count; request++) {
            remember(request);
            openSession();
            render(request);
        }
    }

    public static void main(String[] arguments) {
        Spanprof.start(SpanprofConfig.builder()
                .serviceName("checkout-leak")
                .destinations(List.of(Map.of("type", "file", "directory", arguments[0])))
                .build());
        for (int window = 0; window < 8; window++) {
            serve(500 * window, 500);
            // Objects are in use until a collection has found that they are not.
            System.gc();
            if (window < 7) {
                // Ends a window. In a service, one ends every 10 seconds.
                Spanprof.flush();
            }
        }
        Spanprof.stop();
    }
}
