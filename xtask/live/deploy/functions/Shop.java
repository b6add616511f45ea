import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

/** A small shop without spanprof in its code: `/report` renders a report, `/health` answers. */
public final class Shop {
    private Shop() {}

    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(8000), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            String query = exchange.getRequestURI().getQuery();
            int rows = query == null ? 0 : Integer.parseInt(query.replaceAll("\\D", ""));
            byte[] answer = Integer.toString(renderReport(rows)).getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
    }

    private static int renderReport(int rows) {
        int digest = 0;
        for (int row = 0; row < rows; row++) {
            StringBuilder text = new StringBuilder();
            for (int number = 0; number < 60; number++) text.append(row * number).append(',');
            digest = 31 * digest + text.toString().hashCode();
        }
        return digest;
    }
}
