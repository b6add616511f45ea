package io.spanprof;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * The profiler of this process. Every verb may be called from any thread, any number of times; after {@link #start}
 * nothing is thrown at the program. An argument that is null is counted, and the verb does what it can without it: labels
 * are left out, and what cannot be wrapped is returned as null, for its receiver to refuse. Work given to
 * {@link #tagWrapper} must not be null: it would throw without the profiler too.
 */
public final class Spanprof {
    private Spanprof() {}

    /** Work that may throw what it declares: {@link #tagWrapper} passes its value and its exceptions through. */
    @FunctionalInterface
    public interface Work<T, E extends Exception> {
        T call() throws E;
    }

    /** Starts with what the environment and the configuration file say. */
    public static boolean start() {
        return start(SpanprofConfig.builder().build());
    }

    /**
     * Starts the profiler. True when samples are being taken afterwards; false when switched off, or when there is no
     * library for this machine or this VM cannot be profiled, which is said in one warning.
     *
     * <p>The applications of one process share one profiler, which runs until each application that started it has stopped
     * it. An application is known by its context class loader; to start it twice is to start it once. The settings are those
     * of the first start; a later one that differs is a warning.
     *
     * @throws SpanprofException when the configuration cannot work, or this system cannot be profiled
     */
    public static boolean start(SpanprofConfig config) {
        return start(config, application());
    }

    /** For an application that an object stands for. */
    static boolean start(SpanprofConfig config, Object application) {
        if (InvalidArgument.isNull(config, "start()", "the environment and the defaults apply")) {
            return start(SpanprofConfig.builder().build(), application);
        }
        if (!NativeLibrary.load()) {
            return false;
        }
        byte[] programName = programName().getBytes(StandardCharsets.UTF_8);
        byte[] variables = Packed.pack(Variables.given());
        List<String> outcome = Packed.unpack(Native.start(json(config), programName, variables, application));
        HostLog.begin();
        check(outcome);
        boolean isRunning = outcome.equals(List.of("running"));
        if (isRunning) {
            AtEnd.stop();
        }
        return isRunning;
    }

    /**
     * Stops, and sends the last window within {@code stopTimeout}. True when every window since the start was delivered.
     * Where other applications of the process, or an agent, have started the profiler too, it goes on for them.
     */
    public static boolean stop() {
        if (!NativeLibrary.isLoaded()) {
            return true;
        }
        boolean isDelivered = HostLog.logging(() -> Native.stop(application()));
        AtEnd.forget();
        return isDelivered;
    }

    /** Closes the open window and sends it. True when everything was delivered within {@code stopTimeout}. */
    public static boolean flush() {
        return !NativeLibrary.isLoaded() || Native.flush(-1);
    }

    /** Closes the open window and sends it. True when everything was delivered in time. */
    public static boolean flush(Duration timeout) {
        if (InvalidArgument.isNull(timeout, "flush()", "stopTimeout applies")) {
            return flush();
        }
        return !NativeLibrary.isLoaded() || Native.flush(nanoseconds(timeout));
    }

    /** Ages are a very long time. */
    private static long nanoseconds(Duration time) {
        try {
            return Math.max(0, time.toNanos());
        } catch (ArithmeticException ages) {
            return time.isNegative() ? 0 : Long.MAX_VALUE;
        }
    }

    /**
     * Changes settings of the running profiler. False when none runs.
     *
     * @throws SpanprofException when a key cannot change while running, or its value cannot work; nothing has changed then
     */
    public static boolean update(SpanprofConfig changes) {
        if (InvalidArgument.isNull(changes, "update()", "nothing changes")) {
            return false;
        }
        if (!NativeLibrary.isLoaded()) {
            return false;
        }
        List<String> outcome = Packed.unpack(Native.update(json(changes)));
        check(outcome);
        return outcome.equals(List.of("changed"));
    }

    /** The profiler's own health: counters as {@link Long}, facts as {@link String}; empty when it does not run. */
    public static Map<String, Object> stats() {
        Map<String, Object> stats = new LinkedHashMap<>();
        if (NativeLibrary.isLoaded()) {
            List<String> entries = Packed.unpack(Native.stats());
            for (int i = 0; i + 2 < entries.size(); i += 3) {
                String value = entries.get(i + 2);
                stats.put(entries.get(i), entries.get(i + 1).equals("count") ? Long.valueOf(value) : value);
            }
        }
        return stats;
    }

    /** Whether samples are being taken. */
    public static boolean isRunning() {
        return NativeLibrary.isLoaded() && Native.isRunning();
    }

    /**
     * Where the profiler's few lines go: of levels INFO and WARNING. Null for what it is before: {@link System.Logger}
     * {@code spanprof}.
     */
    public static void setLogger(System.Logger logger) {
        HostLog.to(logger);
    }

    /** Labels every sample of this thread until the scope is closed; use it in {@code try (…)}. */
    public static Scope tag(Map<String, ?> labels) {
        return NativeLibrary.isReady() ? Scope.open(Labels.of(labels)) : Scope.NONE;
    }

    /** As {@link #tag(Map)}, with labels made ready before. */
    public static Scope tag(Labels labels) {
        return Scope.open(labels);
    }

    /** Runs work with labels on every sample of it; gives its value, throws what it throws. */
    public static <T, E extends Exception> T tagWrapper(Map<String, ?> labels, Work<T, E> work) throws E {
        Scope scope = tag(labels);
        try {
            return work.call();
        } finally {
            scope.close();
        }
    }

    /** As {@link #tagWrapper(Map, Work)}, with labels made ready before. */
    public static <T, E extends Exception> T tagWrapper(Labels labels, Work<T, E> work) throws E {
        Scope scope = tag(labels);
        try {
            return work.call();
        } finally {
            scope.close();
        }
    }

    /** As {@link #tagWrapper(Map, Work)}, for work without a value. */
    public static void tagWrapper(Map<String, ?> labels, Runnable work) {
        Scope scope = tag(labels);
        try {
            work.run();
        } finally {
            scope.close();
        }
    }

    /** As {@link #tagWrapper(Map, Runnable)}, with labels made ready before. */
    public static void tagWrapper(Labels labels, Runnable work) {
        Scope scope = tag(labels);
        try {
            work.run();
        } finally {
            scope.close();
        }
    }

    /**
     * Work that says, wherever it runs, what the scopes of this thread say now: labels and span. For work handed to other
     * threads one piece at a time.
     */
    public static Runnable wrap(Runnable work) {
        if (InvalidArgument.isNull(work, "wrap()", "null is returned")) {
            return null;
        }
        return CarriedScope.here().over(work);
    }

    /** As {@link #wrap(Runnable)}, for work with a value. */
    public static <T> Callable<T> wrap(Callable<T> work) {
        if (InvalidArgument.isNull(work, "wrap()", "null is returned")) {
            return null;
        }
        return CarriedScope.here().over(work);
    }

    /** As {@link #wrap(Runnable)}, for stages of a {@link java.util.concurrent.CompletableFuture}. */
    public static <T> Supplier<T> wrapSupplier(Supplier<T> work) {
        if (InvalidArgument.isNull(work, "wrapSupplier()", "null is returned")) {
            return null;
        }
        return CarriedScope.here().overSupplier(work);
    }

    /** As {@link #wrapSupplier}. */
    public static <T, R> Function<T, R> wrapFunction(Function<T, R> work) {
        if (InvalidArgument.isNull(work, "wrapFunction()", "null is returned")) {
            return null;
        }
        return CarriedScope.here().overFunction(work);
    }

    /** As {@link #wrapSupplier}. */
    public static <T, U, R> BiFunction<T, U, R> wrapBiFunction(BiFunction<T, U, R> work) {
        if (InvalidArgument.isNull(work, "wrapBiFunction()", "null is returned")) {
            return null;
        }
        return CarriedScope.here().overBiFunction(work);
    }

    /** As {@link #wrapSupplier}. */
    public static <T> Consumer<T> wrapConsumer(Consumer<T> work) {
        if (InvalidArgument.isNull(work, "wrapConsumer()", "null is returned")) {
            return null;
        }
        return CarriedScope.here().overConsumer(work);
    }

    /** An executor whose tasks say what the scopes of the thread that handed them over said then. */
    public static Executor wrap(Executor executor) {
        if (InvalidArgument.isNull(executor, "wrap()", "null is returned")) {
            return null;
        }
        return work -> executor.execute(wrap(work));
    }

    /** As {@link #wrap(Executor)}; all else is the executor's own. */
    public static ExecutorService wrap(ExecutorService executor) {
        if (InvalidArgument.isNull(executor, "wrap()", "null is returned")) {
            return null;
        }
        return new CarryingExecutor<>(executor);
    }

    /** As {@link #wrap(Executor)}; periodic work keeps what was said when it was scheduled. */
    public static ScheduledExecutorService wrap(ScheduledExecutorService executor) {
        if (InvalidArgument.isNull(executor, "wrap()", "null is returned")) {
            return null;
        }
        return new CarryingScheduler(executor);
    }

    /**
     * A factory whose threads say what the scopes of the thread that asked for them said: for a thread per task, as
     * structured concurrency makes them. Threads of a pool would keep what their first task said.
     */
    public static ThreadFactory wrapThreadFactory(ThreadFactory factory) {
        if (InvalidArgument.isNull(factory, "wrapThreadFactory()", "null is returned")) {
            return null;
        }
        return work -> factory.newThread(wrap(work));
    }

    /** Servers give the threads that start and stop an application its class loader, wherever this class comes from. */
    private static Object application() {
        try {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            return loader != null ? loader : Spanprof.class;
        } catch (SecurityException mayNotAsk) {
            return Spanprof.class;
        }
    }

    private static byte[] json(SpanprofConfig config) {
        return config.toJson().getBytes(StandardCharsets.UTF_8);
    }

    private static void check(List<String> outcome) {
        if (outcome.size() == 3) {
            throw new SpanprofException(outcome.get(0), outcome.get(1), outcome.get(2));
        }
    }

    /** The program as a person would say it: the name of the JAR, or of the main class. */
    private static String programName() {
        String command = System.getProperty("sun.java.command", "").split(" ", 2)[0];
        if (command.endsWith(".jar")) {
            String file = command.substring(command.lastIndexOf('/') + 1);
            return file.substring(0, file.length() - ".jar".length());
        }
        return command.substring(Math.max(command.lastIndexOf('.'), command.lastIndexOf('/')) + 1);
    }
}
