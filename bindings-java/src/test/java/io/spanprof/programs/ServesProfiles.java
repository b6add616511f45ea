package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import io.spanprof.servlet.JavaxPprofServlet;
import io.spanprof.servlet.PprofServlet;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Serves its profiles by a servlet, pulls them from itself, and prints one line for each response. Arguments: directory,
 * servlet API.
 */
public final class ServesProfiles {
    private static final String TOKEN = "pull-token-of-this-test";
    private static final String[] PATHS = {"/debug/pprof/*", "/debug/spanprof/*", "/internal/profiles/*"};

    private static volatile boolean isDone;
    private static volatile double sum;
    private static volatile Object kept;
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    private ServesProfiles() {}

    static void burnForPull() {
        List<byte[]> blocks = new ArrayList<>();
        while (!isDone) {
            for (int i = 0; i < 1_000; i++) {
                sum += Math.sqrt(i + sum);
            }
            if (blocks.size() < 1_000) {
                blocks.add(new byte[100_000]);
                kept = blocks;
            }
        }
    }

    private static Handler jakarta() {
        var context = new org.eclipse.jetty.ee10.servlet.ServletContextHandler();
        context.setContextPath("/shop");
        for (String path : PATHS) {
            context.addServlet(new org.eclipse.jetty.ee10.servlet.ServletHolder(new PprofServlet()), path);
        }
        return context;
    }

    private static Handler javax() {
        var context = new org.eclipse.jetty.ee8.servlet.ServletContextHandler();
        context.setContextPath("/shop");
        for (String path : PATHS) {
            context.addServlet(new org.eclipse.jetty.ee8.servlet.ServletHolder(new JavaxPprofServlet()), path);
        }
        return context.get();
    }

    private static HttpRequest request(String address, String method, String path, String body, String token) {
        return HttpRequest.newBuilder(URI.create(address + path)).header("Authorization", "Bearer " + token)
                .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
    }

    private static byte[] respond(String address, String method, String path, String body, String token)
            throws Exception {
        HttpResponse<byte[]> response =
                CLIENT.send(request(address, method, path, body, token), HttpResponse.BodyHandlers.ofByteArray());
        System.out.println(method + " " + path + " " + response.statusCode() + " "
                + response.headers().firstValue("Location").orElse("-") + " " + response.body().length + " "
                + response.headers().firstValue("Content-Length").orElse("-"));
        return response.body();
    }

    public static void main(String[] args) throws Exception {
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        server.setHandler(args[1].equals("jakarta") ? jakarta() : javax());
        server.start();
        String address = "http://127.0.0.1:" + ((ServerConnector) server.getConnectors()[0]).getLocalPort() + "/shop";
        respond(address, "GET", "/debug/pprof/", "", TOKEN);
        Spanprof.start(SpanprofConfig.builder().serviceName("shop").sampleRate(100).fileDirectory(args[0])
                .pullToken(TOKEN).build());
        Thread burning = new Thread(ServesProfiles::burnForPull);
        burning.start();
        respond(address, "GET", "/debug/pprof/", "", "wrong");
        respond(address, "GET", "/debug/pprof/", "", TOKEN);
        respond(address, "GET", "/debug/pprof", "", TOKEN);
        respond(address, "GET", "/internal/profiles", "", TOKEN);
        respond(address, "GET", "/internal/profiles/nothing", "", TOKEN);
        respond(address, "GET", "/internal/profiles/profile?seconds=abc", "", TOKEN);
        respond(address, "POST", "/debug/pprof/profile", "", TOKEN);
        int busy = 0;
        HttpResponse<byte[]> pulled;
        // A short pull of the loop below may precede.
        do {
            var pull = CLIENT.sendAsync(request(address, "GET", "/debug/pprof/profile?seconds=2", "", TOKEN),
                    HttpResponse.BodyHandlers.ofByteArray());
            while (!pull.isDone()) {
                HttpResponse<String> second = CLIENT.send(
                        request(address, "GET", "/internal/profiles/profile?seconds=0.001", "", TOKEN),
                        HttpResponse.BodyHandlers.ofString());
                busy += second.statusCode() == 429 ? 1 : 0;
                Thread.sleep(20);
            }
            pulled = pull.join();
        } while (pulled.statusCode() == 429);
        System.out.println("busy " + busy);
        System.out.println("pulled " + pulled.statusCode());
        Files.write(Path.of(args[0], "pulled.pb.gz"), pulled.body());
        Files.write(Path.of(args[0], "heap.pb.gz"), respond(address, "GET", "/internal/profiles/allocs", "", TOKEN));
        respond(address, "HEAD", "/debug/pprof/", "", TOKEN);
        respond(address, "PATCH", "/debug/spanprof", "{\"sample_rate\": 50}", TOKEN);
        System.out.println("rate " + Spanprof.stats().get("config.sample_rate"));
        respond(address, "PATCH", "/debug/spanprof", "{\"sample_rate\": 50}" + " ".repeat(65_536), TOKEN);
        respond(address, "POST", "/internal/profiles/spanprof/burst?seconds=10", "", TOKEN);
        respond(address, "BREW", "/debug/spanprof", "", TOKEN);
        isDone = true;
        burning.join();
        server.stop();
        Spanprof.stop();
        System.out.println(String.format(Locale.ROOT, "worked %f %b", sum, kept != null));
    }
}
