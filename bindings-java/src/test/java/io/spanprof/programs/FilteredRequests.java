package io.spanprof.programs;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import io.spanprof.opentelemetry.SpanprofSpanProcessor;
import io.spanprof.servlet.SpanprofFilter;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Requests of known duration through a filter under tail-based retention, without a span processor, or with spans inside or outside of
 * the filter. Every request is labeled with its number. Arguments: directory, number of requests, {@code none}, {@code inside} or
 * {@code outside}.
 */
public final class FilteredRequests {
    private static final long LIMIT_NANOSECONDS = 50_000_000;
    /** One thread: the remaining CPU time of a thread that ends is added without a timestamp. */
    private static final ExecutorService EXECUTOR = Spanprof.wrap(Executors.newSingleThreadExecutor());
    private static double sum;
    private static Tracer tracer;

    private FilteredRequests() {}

    private static void burn(long nanoseconds) {
        long end = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + nanoseconds;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 1_000; i++) {
                sum += Math.sqrt(i + sum);
            }
        }
    }

    /** The duration in nanoseconds. */
    private static String work(int number) {
        long begin = System.nanoTime();
        try (var labels = Spanprof.tag(Map.of("request", number))) {
            burn(number % 50 == 0 ? LIMIT_NANOSECONDS + 10_000_000 : number % 50 == 25 ? 20_000_000 : 500_000);
        }
        return Long.toString(System.nanoTime() - begin);
    }

    private static boolean isFailed(int number) {
        return number % 50 == 25;
    }

    private static int number(String path) {
        return Integer.parseInt(path.substring(path.lastIndexOf('/') + 1));
    }

    private static Span span() {
        return tracer == null ? Span.getInvalid() : tracer.spanBuilder("request").startSpan();
    }

    private static void end(Span span, int status) {
        if (status >= 500) {
            span.setStatus(StatusCode.ERROR);
        }
        span.end();
    }

    private static final class Carts extends jakarta.servlet.http.HttpServlet {
        private static final long serialVersionUID = 1L;

        @Override
        protected void doGet(jakarta.servlet.http.HttpServletRequest request, jakarta.servlet.http.HttpServletResponse response)
                throws IOException {
            int number = number(request.getRequestURI());
            // A span of this program ends with its filter.
            if (number % 2 == 0 || tracer != null) {
                respond(response, number);
                return;
            }
            // Complete on another thread, which runs in the request's context.
            var asynchronous = request.startAsync();
            EXECUTOR.execute(() -> {
                try {
                    respond(response, number);
                } catch (IOException failure) {
                    throw new IllegalStateException(failure);
                } finally {
                    asynchronous.complete();
                }
            });
        }

        private static void respond(jakarta.servlet.http.HttpServletResponse response, int number) throws IOException {
            String duration = work(number);
            response.setStatus(isFailed(number) ? 503 : 200);
            response.getWriter().print(duration);
        }
    }

    private static void add(Server server, boolean isTracingInside) {
        var context = new org.eclipse.jetty.ee10.servlet.ServletContextHandler();
        var requests = EnumSet.of(jakarta.servlet.DispatcherType.REQUEST);
        jakarta.servlet.Filter tracing = (request, response, chain) -> {
            Span span = span();
            try (var active = span.makeCurrent()) {
                chain.doFilter(request, response);
            } finally {
                end(span, ((jakarta.servlet.http.HttpServletResponse) response).getStatus());
            }
        };
        SpanprofFilter own = new SpanprofFilter();
        for (var filter : isTracingInside ? List.of(own, tracing) : List.of(tracing, own)) {
            var holder = new org.eclipse.jetty.ee10.servlet.FilterHolder(filter);
            holder.setAsyncSupported(true);
            context.addFilter(holder, "/*", requests);
        }
        var servlet = new org.eclipse.jetty.ee10.servlet.ServletHolder(new Carts());
        servlet.setAsyncSupported(true);
        context.addServlet(servlet, "/carts/*");
        server.setHandler(context);
    }

    public static void main(String[] args) throws Exception {
        if (!args[2].equals("none")) {
            tracer = SdkTracerProvider.builder().addSpanProcessor(new SpanprofSpanProcessor()).build().get("requests");
        }
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        add(server, args[2].equals("inside"));
        server.start();
        Spanprof.start(SpanprofConfig.builder().serviceName("requests").sampleRate(500).heap(false).fileDirectory(args[0])
                // The library for tests is not optimized: on a busy machine its cost would limit the rate to 10 Hz.
                .cpuBudget(0).retention("tail").tailDuration(Duration.ofNanos(LIMIT_NANOSECONDS)).build());
        String address = "http://127.0.0.1:" + ((ServerConnector) server.getConnectors()[0]).getLocalPort() + "/carts/";
        HttpClient client = HttpClient.newHttpClient();
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            long begin = System.nanoTime();
            HttpResponse<String> response = client.send(HttpRequest.newBuilder(URI.create(address + number)).build(),
                    HttpResponse.BodyHandlers.ofString());
            System.out.println("request " + number + " " + response.body() + " " + (System.nanoTime() - begin) + " "
                    + response.statusCode());
        }
        server.stop();
        EXECUTOR.shutdown();
        Spanprof.flush();
        for (String key : List.of("tail.requests", "tail.undecided", "tail.held_bytes")) {
            System.out.println(key + " " + Spanprof.stats().get(key));
        }
        Spanprof.stop();
    }
}
