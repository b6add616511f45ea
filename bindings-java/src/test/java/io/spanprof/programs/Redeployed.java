package io.spanprof.programs;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** A server that undeploys applications while its threads live on; counts the class loaders that stay in the VM. */
public final class Redeployed {
    private static final long TIMEOUT_NANOSECONDS = 30_000_000_000L;

    private Redeployed() {}

    /** An application, loaded by a new class loader each time. */
    public static final class Application {
        private Application() {}

        public static void start(String directory) {
            SpanprofConfig config = SpanprofConfig.builder()
                    .serviceName("redeployed").fileDirectory(directory).inheritThreads(true).build();
            Spanprof.start(config);
            // The second call logs a line.
            Spanprof.start(config);
        }

        public static void serve(String directory) {
            Spanprof.tagWrapper(Map.of("endpoint", "/cart"), () -> {
                try (Scope inner = Spanprof.tag(Map.of("step", "price"))) {
                    return Math.sqrt(directory.length());
                }
            });
        }

        public static void stop(String directory) {
            Spanprof.stop();
        }
    }

    private static void call(Class<?> application, String method, String directory) throws Exception {
        application.getMethod(method, String.class).invoke(null, directory);
    }

    /** The life of an application from start to stop; {@code isOutlived} if another one lives longer. */
    private static List<WeakReference<ClassLoader>> life(ExecutorService server, String directory, boolean isOutlived)
            throws Exception {
        Class<?> application = TwoLoaders.loadSeparately(Application.class);
        Class<?> ends = isOutlived ? TwoLoaders.loadSeparately(Application.class) : application;
        call(application, "start", directory);
        call(ends, "start", directory);
        call(application, "serve", directory);
        server.submit(() -> {
            call(application, "serve", directory);
            return null;
        }).get(30, TimeUnit.SECONDS);
        call(application, "stop", directory);
        call(ends, "stop", directory);
        return List.of(new WeakReference<>(application.getClassLoader()), new WeakReference<>(ends.getClassLoader()));
    }

    public static void main(String[] args) throws Exception {
        ExecutorService server = Executors.newFixedThreadPool(1);
        List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            loaders.addAll(life(server, args[0], i % 2 == 1));
        }
        // Clears the references of the server's thread.
        server.submit(() -> null).get(30, TimeUnit.SECONDS);
        long end = System.nanoTime() + TIMEOUT_NANOSECONDS;
        while (loaders.stream().anyMatch(loader -> loader.get() != null) && System.nanoTime() < end) {
            System.gc();
            Thread.sleep(100);
        }
        System.out.println("left " + loaders.stream().filter(loader -> loader.get() != null).count());
        // The library loaded by the first one stays for the next.
        Class<?> last = TwoLoaders.loadSeparately(Application.class);
        call(last, "start", args[0]);
        call(last, "serve", args[0]);
        call(last, "stop", args[0]);
        server.shutdown();
        System.out.println("ended 1");
    }
}
