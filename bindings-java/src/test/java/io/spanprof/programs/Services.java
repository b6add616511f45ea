package io.spanprof.programs;

import com.sun.net.httpserver.HttpServer;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SdkTracerProviderBuilder;
import io.opentelemetry.sdk.trace.SpanProcessor;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import io.spanprof.Spanprof;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.support.AnnotationConfigWebApplicationContext;
import org.springframework.web.servlet.DispatcherServlet;
import org.springframework.web.servlet.config.annotation.EnableWebMvc;

/**
 * Services without a line of the profiler, each with three requests: {@code spring}, {@code jetty}, {@code jdk}; or spans of an SDK in
 * code, {@code sdk}, and with a profiler that is started in code, {@code global}.
 * {@code child} before it: in a class loader of its own, as in a JAR of Spring Boot.
 */
public final class Services {
    private static final int REQUESTS = 3;
    private static double sum;

    private Services() {}

    static void work() {
        long end = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + 100_000_000L;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 20_000; i++) {
                sum += Math.sqrt(i + sum);
            }
        }
    }

    /** The getting-started page of Spring MVC. */
    @Configuration
    @EnableWebMvc
    @RestController
    public static class Carts {
        @GetMapping("/carts/{number}")
        public String get(@PathVariable("number") int number) {
            work();
            return "done";
        }
    }

    /** Classes of libraries are in nested classes: programs without them load this one. */
    private static final class Spring {
        static int start() throws Exception {
            Tomcat tomcat = new Tomcat();
            tomcat.setBaseDir(Files.createTempDirectory("tomcat").toString());
            tomcat.setPort(0);
            Context context = tomcat.addContext("", null);
            AnnotationConfigWebApplicationContext beans = new AnnotationConfigWebApplicationContext();
            beans.register(Carts.class);
            Tomcat.addServlet(context, "spring", new DispatcherServlet(beans)).addMapping("/");
            tomcat.start();
            return tomcat.getConnector().getLocalPort();
        }
    }

    /** A servlet of Jetty with a pattern. */
    private static final class Jetty {
        static int start() throws Exception {
            Server server = new Server(0);
            ServletContextHandler context = new ServletContextHandler();
            context.addServlet(new ServletHolder(new HttpServlet() {
                private static final long serialVersionUID = 1L;

                @Override
                protected void doGet(HttpServletRequest request, HttpServletResponse response) {
                    work();
                }
            }), "/carts/*");
            server.setHandler(context);
            server.start();
            return ((ServerConnector) server.getConnectors()[0]).getLocalPort();
        }
    }

    private static int jdk() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/carts", exchange -> {
            work();
            exchange.sendResponseHeaders(200, -1);
            exchange.close();
        });
        server.start();
        return server.getAddress().getPort();
    }

    /** Spans of requests, with a provider that is not global. */
    private static final class Sdk {
        static void run() throws Exception {
            SdkTracerProviderBuilder builder = SdkTracerProvider.builder();
            if (Boolean.getBoolean("registers")) {
                Class<?> processor = Class.forName("io.spanprof.opentelemetry.SpanprofSpanProcessor");
                builder.addSpanProcessor((SpanProcessor) processor.getConstructor().newInstance());
            }
            spans(builder.build());
        }

        static void spans(SdkTracerProvider provider) {
            for (int i = 0; i < REQUESTS; i++) {
                Span span = provider.get("services").spanBuilder("GET").startSpan();
                try (Scope active = span.makeCurrent()) {
                    // The request has the samples of the spans below it.
                    Span child = provider.get("services").spanBuilder("SELECT").setSpanKind(SpanKind.CLIENT).startSpan();
                    try (Scope below = child.makeCurrent()) {
                        work();
                    } finally {
                        child.end();
                    }
                } finally {
                    span.setAttribute("http.route", "/carts").setAttribute("http.method", "GET").end();
                }
            }
        }
    }

    /** The profiler is started in code; the SDK is set later, and has no processor. */
    private static final class Global {
        static void run() {
            Spanprof.start();
            // An SDK without processor records no span.
            SpanProcessor exporter = SimpleSpanProcessor.create(SpanExporter.composite());
            SdkTracerProvider provider = SdkTracerProvider.builder().addSpanProcessor(exporter).build();
            OpenTelemetrySdk.builder().setTracerProvider(provider).buildAndRegisterGlobal();
            provider.get("services").spanBuilder("first").startSpan().makeCurrent().close();
            Sdk.spans(provider);
        }
    }

    /** Loads the libraries and this class itself: the system's loader has neither. */
    private static final class Application extends URLClassLoader {
        Application(URL... urls) {
            super(urls, ClassLoader.getSystemClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            boolean isOwn = name.startsWith("io.spanprof.programs.");
            Class<?> loaded = isOwn ? findLoadedClass(name) : null;
            return loaded != null ? loaded : isOwn ? findClass(name) : super.loadClass(name, resolve);
        }
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("child")) {
            String[] entries = System.getProperty("libraries").split(File.pathSeparator);
            URL[] urls = new URL[entries.length];
            for (int i = 0; i < entries.length; i++) {
                urls[i] = Paths.get(entries[i]).toUri().toURL();
            }
            Application application = new Application(urls);
            Thread.currentThread().setContextClassLoader(application);
            Class<?> type = application.loadClass(Services.class.getName());
            type.getMethod("main", String[].class).invoke(null, (Object) new String[] {args[1]});
            return;
        }
        if (args[0].equals("sdk")) {
            Sdk.run();
            System.exit(0);
        }
        if (args[0].equals("global")) {
            // The first span shows which provider is global.
            Global.run();
            System.exit(0);
        }
        int port = args[0].equals("spring") ? Spring.start() : args[0].equals("jetty") ? Jetty.start() : jdk();
        for (int i = 0; i < REQUESTS; i++) {
            // Not a client that the agent knows: its spans would be local roots.
            try (Socket socket = new Socket("127.0.0.1", port)) {
                socket.getOutputStream().write(("GET /carts/" + i + " HTTP/1.0\r\n\r\n").getBytes());
                if (!new BufferedReader(new InputStreamReader(socket.getInputStream())).readLine().contains(" 200 ")) {
                    System.exit(1);
                }
            }
        }
        // Servers end a request after its response.
        Thread.sleep(200);
        System.exit(0);
    }
}
