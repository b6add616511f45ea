package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.concurrent.Callable;

/**
 * Applications of one server that start and stop the profiler independently, each with its own JAR ({@code own}), or with
 * the server's JAR for all ({@code shared}). Prints which applications see it running at each step.
 */
public final class Applications {
    private static final long TIMEOUT_NANOSECONDS = 30_000_000_000L;

    private Applications() {}

    /** The calls of an application. */
    public static final class Application {
        private Application() {}

        public static void start(String directory) {
            SpanprofConfig config =
                    SpanprofConfig.builder().serviceName("server").sampleRate(250).fileDirectory(directory).build();
            Spanprof.start(config);
        }

        /** Starts with a setting that differs from the first application's. */
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

    /** Calls an application with its class loader as context class loader, as servers do; as pools do, without one for a stop. */
    private static void call(ClassLoader loader, String method, String argument) throws Exception {
        Callable<?> call = () -> Class.forName(Application.class.getName(), true, loader)
                .getMethod(method, String.class).invoke(null, argument);
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(method.equals("stop") ? null : loader);
        try {
            call.call();
        } finally {
            thread.setContextClassLoader(before);
        }
    }

    /** Has the application's class, as the class loader of a web application has; the package is its parent's. */
    private static final class OwnClasses extends URLClassLoader {
        OwnClasses() {
            super(new URL[] {Application.class.getProtectionDomain().getCodeSource().getLocation()},
                    Applications.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            return name.equals(Application.class.getName()) ? findClass(name) : super.loadClass(name, resolve);
        }
    }

    private static ClassLoader application(boolean hasOwn) throws Exception {
        return hasOwn
                ? TwoLoaders.loadSeparately(Application.class).getClassLoader()
                : new OwnClasses();
    }

    public static void main(String[] args) throws Exception {
        boolean hasOwn = args[1].equals("own");
        ClassLoader first = application(hasOwn);
        ClassLoader second = application(hasOwn);
        ClassLoader idle = application(hasOwn);
        call(first, "start", args[0]);
        call(second, "startOtherwise", args[0]);
        call(second, "start", args[0]);
        call(first, "stop", args[0]);
        call(second, "isRunning", "after_the_first_stopped");
        call(first, "stop", args[0]);
        call(second, "isRunning", "after_it_stopped_again");
        call(idle, "stop", args[0]);
        call(second, "isRunning", "after_one_that_never_started_stopped");
        WeakReference<ClassLoader> gone = new WeakReference<>(first);
        first = null;
        long end = System.nanoTime() + TIMEOUT_NANOSECONDS;
        while (gone.get() != null && System.nanoTime() < end) {
            System.gc();
            Thread.sleep(100);
        }
        System.out.println("first_is_gone " + (gone.get() == null ? 1 : 0));
        call(second, "isRunning", "while_the_second_remains");
        call(second, "stop", args[0]);
        call(second, "isRunning", "after_all_stopped");
    }
}
