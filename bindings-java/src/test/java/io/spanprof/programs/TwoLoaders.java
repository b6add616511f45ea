package io.spanprof.programs;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Two class loaders with a copy of the package each, like two applications in a server: one starts the profiler, the other
 * sets labels.
 */
public final class TwoLoaders {
    private TwoLoaders() {}

    /** The code of an application; loaded by each class loader. */
    public static final class Application {
        private static double sum;

        private Application() {}

        static void work() {
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            for (long end = threads.getCurrentThreadCpuTime() + 500_000_000L; threads.getCurrentThreadCpuTime() < end; ) {
                for (int i = 0; i < 100_000; i++) {
                    sum += Math.sqrt(i);
                }
            }
        }

        public static void start(String directory) {
            Spanprof.start(SpanprofConfig.builder().serviceName("loaders").sampleRate(250).fileDirectory(directory).build());
        }

        public static void label(String directory) {
            System.out.println("second_sees_it_running " + (Spanprof.isRunning() ? 1 : 0));
            try (Scope scope = Spanprof.tag(Map.of("application", "second"))) {
                work();
            }
            System.out.println("stopped_by_second " + (Spanprof.stop() ? 1 : 0));
        }
    }

    /** Loads a class and the package with a new class loader. */
    static Class<?> loadSeparately(Class<?> type) throws Exception {
        List<URL> urls = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            urls.add(new File(entry).toURI().toURL());
        }
        ClassLoader loader = new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        return Class.forName(type.getName(), true, loader);
    }

    /** Number of profiler libraries that are loaded from in-memory files. */
    private static long copiesInMemory() throws IOException {
        try (Stream<String> mapped = Files.lines(Path.of("/proc/self/maps"))) {
            return mapped.filter(line -> line.contains("memfd:libspanprof_java.so")).map(line -> line.split(" +")[4])
                    .distinct().count();
        }
    }

    public static void main(String[] args) throws Exception {
        loadSeparately(Application.class).getMethod("start", String.class).invoke(null, args[0]);
        loadSeparately(Application.class).getMethod("label", String.class).invoke(null, args[0]);
        System.out.println("copies_in_memory " + copiesInMemory());
    }
}
