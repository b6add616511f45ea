import com.sun.net.httpserver.HttpServer;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A web service under one profiler: orders in, checks, prices, sorting, HTML out, a cache behind a lock. Prints its port, serves
 * until its standard input ends, then prints the profiler's counters as JSON.
 *
 * <pre>ServiceRun PROFILER ADDRESS</pre>
 */
final class ServiceRun {
    /** Orders that the cache holds. */
    private static final int CACHED = 2000;
    private static final int THREADS = 8;
    /** How often an order is processed, so that a request takes as long as in the other languages. */
    private static final int REPEATS = 8;
    private static final Pattern LINE = Pattern.compile("\"name\": \"([a-z]+(?:-[0-9]+)+)\", \"count\": ([0-9]+)");

    private final Object lock = new Object();
    private final Map<String, String> orders = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, String> eldest) {
            return size() > CACHED;
        }
    };

    private record Line(String name, int count, int price) {}

    private ServiceRun() {}

    public static void main(String[] words) throws Exception {
        ServiceProfiler profiler = ServiceProfiler.started(words[0], words[1]);
        ServiceRun service = new ServiceRun();
        System.setProperty("sun.net.httpserver.nodelay", "true");
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(threads);
        server.createContext("/", exchange -> {
            byte[] answer = service.order(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
            exchange.sendResponseHeaders(200, answer.length);
            try (OutputStream body = exchange.getResponseBody()) {
                body.write(answer);
            }
        });
        server.start();
        System.out.println(server.getAddress().getPort());
        System.in.readAllBytes();
        System.out.println(profiler.stop());
        System.exit(0);
    }

    private byte[] order(String body) {
        String page = "";
        for (int repeat = 0; repeat < REPEATS; repeat++) {
            page = page(lines(body));
            synchronized (lock) {
                orders.put(body.substring(0, 16) + repeat, page);
            }
        }
        return page.getBytes(StandardCharsets.UTF_8);
    }

    private static List<Line> lines(String body) {
        List<Line> lines = new ArrayList<>();
        Matcher found = LINE.matcher(body);
        while (found.find()) {
            int count = Integer.parseInt(found.group(2));
            int price = 0;
            for (int discount = 0; discount < count; discount++) {
                price += 100 - discount % 7;
            }
            lines.add(new Line(found.group(1).replace('-', ' '), count, price));
        }
        lines.sort(Comparator.comparing(Line::price).thenComparing(Line::name));
        return lines;
    }

    private static String page(List<Line> lines) {
        StringBuilder page = new StringBuilder();
        for (Line line : lines) {
            page.append("<tr><td>").append(line.name).append("</td><td>").append(line.count).append("</td><td>").append(line.price)
                    .append("</td></tr>");
        }
        return page.toString();
    }
}
