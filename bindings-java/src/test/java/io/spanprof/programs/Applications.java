package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.concurrent.Callable;

/**
 * Applications of one server that start and stop the profiler, each at its own time; with a JAR for each ({@code own}), or
 * one of the server's for all ({@code shared}). Prints who found it running when.
 */
public final class Applications {
    private static final long PATIENCE_NANOSECONDS = 30_000_000_000L;

    private Applications() {}

    /** An application's calls. */
    public static final class Application {
        private Application() {}

        public static void start(String directory) {
            SpanprofConfig config =
                    SpanprofConfig.builder().serviceName("server").sampleRate(250).fileDirectory(directory).build();
            Spanprof.start(config);
        }

        /** As the other, with a setting that the first application has set otherwise. */
        public static void startOtherwise(String directory) {
            SpanprofConfig config =
                    SpanprofConfig.builder().serviceName("server").sampleRate(50).fileDirectory(directory).build();
            Spanprof.start(config);
        }

        public static void stop(String directory) {
            Spanprof.stop();
        }

        public static void isRunning(String when) {
            System.out.println(when + " " + (Spanprof.isRunning() ? 1 : 0));
        }
    }

    /** Has its own class loader while it is called, as servers see to. */
    private static void call(ClassLoader loader, String verb, String word) throws Exception {
        Callable<?> call = () -> Class.forName(Application.class.getName(), true, loader)
                .getMethod(verb, String.class).invoke(null, word);
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(loader);
        try {
            call.call();
        } finally {
            thread.setContextClassLoader(before);
        }
    }

    private static ClassLoader application(boolean hasOwn) throws Exception {
        return hasOwn
                ? TwoLoaders.loadedAnew(Application.class).getClassLoader()
                : new URLClassLoader(new URL[0], Applications.class.getClassLoader());
    }

    public static void main(String[] words) throws Exception {
        boolean hasOwn = words[1].equals("own");
        ClassLoader first = application(hasOwn);
        ClassLoader second = application(hasOwn);
        ClassLoader idle = application(hasOwn);
        call(first, "start", words[0]);
        call(second, "startOtherwise", words[0]);
        call(second, "start", words[0]);
        call(first, "stop", words[0]);
        call(second, "isRunning", "after_the_first_stopped");
        call(first, "stop", words[0]);
        call(second, "isRunning", "after_it_stopped_again");
        call(idle, "stop", words[0]);
        call(second, "isRunning", "after_one_that_never_started_stopped");
        WeakReference<ClassLoader> gone = new WeakReference<>(first);
        first = null;
        long end = System.nanoTime() + PATIENCE_NANOSECONDS;
        while (gone.get() != null && System.nanoTime() < end) {
            System.gc();
            Thread.sleep(100);
        }
        System.out.println("first_is_gone " + (gone.get() == null ? 1 : 0));
        call(second, "isRunning", "while_the_second_remains");
        call(second, "stop", words[0]);
        call(second, "isRunning", "after_all_stopped");
    }
}
