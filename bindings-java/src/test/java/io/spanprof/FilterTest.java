package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.servlet.JavaxSpanprofFilter;
import io.spanprof.servlet.SpanprofFilter;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The labels and span of a request's samples, read by a servlet in a real server of either servlet API. */
class FilterTest {
    private static final String TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
    private static final String SPAN = "00f067aa0ba902b7";
    private static final String OWN_SPAN = "b7ad6b7169203331";
    private static final String SPRING = "org.springframework.web.servlet.HandlerMapping.bestMatchingPattern";

    private final Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
    /** Labels of the server's threads after the filter. */
    private final Set<String> afterwards = ConcurrentHashMap.newKeySet();

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    @AfterEach
    void stop() throws Exception {
        server.stop();
    }

    /** Labels of this thread, and its span; without one, the first half of its trace. */
    private static String labels() {
        long[] words = Scope.currentWords();
        TreeMap<String, String> labels = new TreeMap<>();
        var flat = Packed.unpack(Native.labelsOf((int) words[0]));
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            labels.put(flat.get(i), flat.get(i + 1));
        }
        long id = Long.reverseBytes(words[3] == 0 ? words[1] : words[3]);
        return labels + (id == 0 ? "" : " " + String.format("%016x", id));
    }

    /** A span of this process, active in some requests. */
    private static Scope localSpan(String path) {
        Map<String, String> span = Map.of("trace_id", TRACE, "span_id", OWN_SPAN);
        return Spanprof.tag(path.startsWith("/traced") ? span : Map.of());
    }

    private static final class JakartaShop extends jakarta.servlet.http.HttpServlet {
        private static final long serialVersionUID = 1L;

        @Override
        protected void service(jakarta.servlet.http.HttpServletRequest request, jakarta.servlet.http.HttpServletResponse response)
                throws IOException {
            if (request.getServletPath().startsWith("/spring")) {
                request.setAttribute(SPRING, "/spring/{size}");
            }
            response.getWriter().print(labels());
        }
    }

    private void startJakarta() throws Exception {
        var context = new org.eclipse.jetty.ee10.servlet.ServletContextHandler();
        context.setContextPath("/shop");
        var requests = EnumSet.of(jakarta.servlet.DispatcherType.REQUEST);
        jakarta.servlet.Filter outerFilter = (request, response, chain) -> {
            try (Scope localSpan = localSpan(((jakarta.servlet.http.HttpServletRequest) request).getServletPath())) {
                chain.doFilter(request, response);
            }
            afterwards.add(labels());
        };
        context.addFilter(new org.eclipse.jetty.ee10.servlet.FilterHolder(outerFilter), "/*", requests);
        context.addFilter(SpanprofFilter.class, "/*", requests);
        context.addServlet(new org.eclipse.jetty.ee10.servlet.ServletHolder(new JakartaShop()), "/cart/*");
        context.addServlet(new org.eclipse.jetty.ee10.servlet.ServletHolder(new JakartaShop()), "/spring/*");
        context.addServlet(new org.eclipse.jetty.ee10.servlet.ServletHolder(new JakartaShop()), "/");
        server.setHandler(context);
        server.start();
    }

    private void startJavax() throws Exception {
        var context = new org.eclipse.jetty.ee8.servlet.ServletContextHandler();
        context.setContextPath("/shop");
        var requests = EnumSet.of(javax.servlet.DispatcherType.REQUEST);
        javax.servlet.Filter answer = (request, response, chain) -> response.getWriter().print(labels());
        context.addFilter(JavaxSpanprofFilter.class, "/*", requests);
        context.addFilter(new org.eclipse.jetty.ee8.servlet.FilterHolder(answer), "/*", requests);
        context.addServlet(org.eclipse.jetty.ee8.servlet.DefaultServlet.class, "/cart/*");
        server.setHandler(context.get());
        server.start();
    }

    private String get(String method, String path, String... headers) throws Exception {
        int port = ((ServerConnector) server.getConnectors()[0]).getLocalPort();
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path))
                .timeout(Duration.ofSeconds(30)).method(method, HttpRequest.BodyPublishers.noBody());
        if (headers.length > 0) {
            request.headers(headers);
        }
        HttpResponse<String> response =
                HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());
        assertEquals(200, response.statusCode(), response::body);
        return response.body();
    }

    @Test
    void requestsOfAJakartaServerAreLabeled() throws Exception {
        startJakarta();
        assertEquals("{http.request.method=GET, http.route=/shop/cart/*}", get("GET", "/shop/cart/7"));
        assertEquals("{http.request.method=POST, http.route=/shop/spring/{size}}", get("POST", "/shop/spring/7"));
        assertEquals("{http.request.method=_OTHER}", get("BREW", "/shop/elsewhere"));
        assertEquals("{http.request.method=GET, http.route=/shop/cart/*} " + TRACE.substring(0, 16),
                get("GET", "/shop/cart/7", "traceparent", "00-" + TRACE + "-" + SPAN + "-01"));
        assertEquals("{http.request.method=GET, http.route=/shop/cart/*}",
                get("GET", "/shop/cart/7", "traceparent", "00-nonsense"));
        assertEquals("{http.request.method=GET} " + OWN_SPAN,
                get("GET", "/shop/traced", "traceparent", "00-" + TRACE + "-" + SPAN + "-01"));
        assertEquals(Set.of("{}"), afterwards, "labels stay on the server's threads");
    }

    /** The classes for this API are those for {@code jakarta.servlet} with other names. */
    @Test
    void requestsOfAJavaxServerAreLabeled() throws Exception {
        startJavax();
        assertEquals("{http.request.method=GET, http.route=/shop/cart/*} " + TRACE.substring(0, 16),
                get("GET", "/shop/cart/7", "traceparent", "00-" + TRACE + "-" + SPAN + "-01"));
    }
}
