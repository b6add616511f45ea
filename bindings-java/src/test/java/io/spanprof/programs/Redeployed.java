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

/** A server that takes applications away while its threads live on: what of their classes stays in the VM. */
public final class Redeployed {
    private static final long PATIENCE_NANOSECONDS = 30_000_000_000L;

    private Redeployed() {}

    /** An application; loaded anew each time. */
    public static final class Application {
        private Application() {}

        public static void start(String directory) {
            SpanprofConfig config = SpanprofConfig.builder()
                    .serviceName("redeployed").fileDirectory(directory).inheritThreads(true).build();
            Spanprof.start(config);
            // The second time is a line for the logger.
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

    private static void call(Class<?> application, String verb, String directory) throws Exception {
        application.getMethod(verb, String.class).invoke(null, directory);
    }

    /** An application's life from its start to its end; another one may live longer. */
    private static List<WeakReference<ClassLoader>> life(ExecutorService server, String directory, boolean isOutlived)
            throws Exception {
        Class<?> application = TwoLoaders.loadedAnew(Application.class);
        Class<?> ends = isOutlived ? TwoLoaders.loadedAnew(Application.class) : application;
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

    public static void main(String[] words) throws Exception {
        ExecutorService server = Executors.newFixedThreadPool(1);
        List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            loaders.addAll(life(server, words[0], i % 2 == 1));
        }
        // What the server's thread did last is not the application's to take away.
        server.submit(() -> null).get(30, TimeUnit.SECONDS);
        long end = System.nanoTime() + PATIENCE_NANOSECONDS;
        while (loaders.stream().anyMatch(loader -> loader.get() != null) && System.nanoTime() < end) {
            System.gc();
            Thread.sleep(100);
        }
        System.out.println("left " + loaders.stream().filter(loader -> loader.get() != null).count());
        // The library that the first of them brought is still there for the next.
        Class<?> last = TwoLoaders.loadedAnew(Application.class);
        call(last, "start", words[0]);
        call(last, "serve", words[0]);
        call(last, "stop", words[0]);
        server.shutdown();
        System.out.println("ended 1");
    }
}
