package io.spanprof;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
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
 * The profiler of this process. Every method may be called from any thread, any number of times. After {@link #start} no
 * method throws into the program. A null argument is counted, and the method works without it: labels are skipped, and null
 * work is returned as null. Work passed to {@link #tagWrapper} must not be null: it would throw without the profiler too.
 */
public final class Spanprof {
    private Spanprof() {}

    /** Work with a declared exception: {@link #tagWrapper} returns its value and throws its exceptions. */
    @FunctionalInterface
    public interface Work<T, E extends Exception> {
        T call() throws E;
    }

    /** Starts the profiler with the settings of the environment and the configuration file. */
    public static boolean start() {
        try {
            return start(SpanprofConfig.builder().build());
        } catch (RuntimeException | Error failure) {
            decline(failure, false);
            return false;
        }
    }

    /**
     * Starts the profiler. True if it takes samples afterwards. False if it is disabled, or this process cannot be profiled,
     * such as on a machine without a library or without memory for it. One warning then gives the reason.
     *
     * <p>The applications of one process share one profiler, which runs until each application that started it has stopped
     * it. An application is identified by the class loader of the calling class; starting it twice has no effect. The settings
     * are those of the first start; a later start with other settings logs a warning.
     *
     * @throws SpanprofException when a setting in {@code config} is impossible, and for nothing else
     */
    public static boolean start(SpanprofConfig config) {
        return start(config, null);
    }

    /** Starts the profiler for an application identified by an object; for the calling one if that is null. */
    static boolean start(SpanprofConfig config, Object application) {
        boolean wasRunning = false;
        try {
            if (InvalidArgument.isNull(config, "start()", "the environment and the defaults apply")) {
                return start(SpanprofConfig.builder().build(), application);
            }
            if (!NativeLibrary.load()) {
                return false;
            }
            wasRunning = isRunning();
            return Privileged.call(new Supplier<Boolean>() {
                @Override
                public Boolean get() {
                    return startLoaded(config, application);
                }
            });
        } catch (SpanprofException impossible) {
            throw impossible;
        } catch (SecurityException denied) {
            NativeLibrary.report(denied);
            return false;
        } catch (RuntimeException | Error failure) {
            // Of the VM, such as a lack of memory or an unreadable JAR.
            decline(failure, wasRunning);
            return false;
        }
    }

    private static void decline(Throwable failure, boolean wasRunning) {
        try {
            HostLog.warn("spanprof: this process is not profiled: " + failure);
            if (!wasRunning && NativeLibrary.isLoaded()) {
                Native.stop(true);
            }
        } catch (RuntimeException | Error alsoHere) {
            return;
        }
    }

    private static boolean startLoaded(SpanprofConfig config, Object application) {
        if (LaterApi.isInNamedModule(Spanprof.class)) {
            SpanLink.ofModulePath();
        }
        byte[] programName = programName().getBytes(StandardCharsets.UTF_8);
        byte[] variables = Packed.pack(Variables.read());
        List<String> outcome = Packed.unpack(Native.start(json(config), programName, variables, application));
        LogThread.begin();
        check(outcome);
        boolean isRunning = outcome.equals(Collections.singletonList("running"));
        if (isRunning || outcome.equals(Collections.singletonList("disabled"))) {
            ShutdownHook.install();
        }
        return isRunning;
    }

    /**
     * Stops the profiler and sends the last window within {@code stopTimeout}. True if every window since the start was
     * delivered. If other applications of the process or an agent have started the profiler too, it continues for them.
     */
    public static boolean stop() {
        try {
            if (!NativeLibrary.isLoaded()) {
                return true;
            }
            boolean isDelivered = HostLog.logging(() -> Native.stop(false));
            ShutdownHook.removeIfUnused();
            return isDelivered;
        } catch (RuntimeException | Error failure) {
            // Of the VM, such as an unreadable JAR.
            return false;
        }
    }

    /** Closes the open window and sends it. True if everything was delivered within {@code stopTimeout}. */
    public static boolean flush() {
        try {
            return !NativeLibrary.isLoaded() || Native.flush(-1);
        } catch (RuntimeException | Error failure) {
            return false;
        }
    }

    /** Closes the open window and sends it. True if everything was delivered in time. */
    public static boolean flush(Duration timeout) {
        try {
            boolean isNull = InvalidArgument.isNull(timeout, "flush()", "stopTimeout applies");
            return !NativeLibrary.isLoaded() || Native.flush(isNull ? -1 : Nanoseconds.of(timeout));
        } catch (RuntimeException | Error failure) {
            return false;
        }
    }

    /**
     * Changes settings of the running profiler. False if none runs.
     *
     * @throws SpanprofException when a key cannot change while running, or its value is invalid; then no setting has changed
     */
    public static boolean update(SpanprofConfig changes) {
        try {
            if (InvalidArgument.isNull(changes, "update()", "nothing changes") || !NativeLibrary.isLoaded()) {
                return false;
            }
            List<String> outcome = Packed.unpack(Native.update(json(changes)));
            check(outcome);
            return outcome.equals(Collections.singletonList("changed"));
        } catch (SpanprofException impossible) {
            throw impossible;
        } catch (RuntimeException | Error failure) {
            return false;
        }
    }

    /** Statistics of the profiler: counters as {@link Long}, other values as {@link String}; empty if it does not run. */
    public static Map<String, Object> stats() {
        Map<String, Object> stats = new LinkedHashMap<>();
        try {
            List<String> entries = NativeLibrary.isLoaded() ? Packed.unpack(Native.stats()) : Collections.emptyList();
            for (int i = 0; i + 2 < entries.size(); i += 3) {
                String value = entries.get(i + 2);
                stats.put(entries.get(i), entries.get(i + 1).equals("count") ? Long.valueOf(value) : value);
            }
        } catch (RuntimeException | Error failure) {
            stats.clear();
        }
        return stats;
    }

    /** Whether the profiler takes samples. */
    public static boolean isRunning() {
        try {
            return NativeLibrary.isLoaded() && Native.isRunning();
        } catch (RuntimeException | Error failure) {
            return false;
        }
    }

    /**
     * Sets the receivers of the profiler's lines of information and of its warnings, such as {@code logger::info} and {@code
     * logger::warn}. Null restores the default: {@code System.Logger} {@code spanprof}, or in Java 8 the one of {@code
     * java.util.logging}.
     */
    public static void setLogger(Consumer<String> info, Consumer<String> warn) {
        HostLog.setLogger(info, warn);
    }

    /** Labels every sample of this thread until the scope is closed; use it in {@code try (…)}. */
    public static Scope tag(Map<String, ?> labels) {
        try {
            return NativeLibrary.isReady() ? Scope.open(Labels.of(labels)) : Scope.NONE;
        } catch (RuntimeException | Error failure) {
            // Of the VM, such as an unreadable JAR.
            return Scope.NONE;
        }
    }

    /** As {@link #tag(Map)}, with prepared labels. */
    public static Scope tag(Labels labels) {
        return Scope.open(labels);
    }

    /** Runs work with labels on all its samples; returns its value and throws its exceptions. */
    public static <T, E extends Exception> T tagWrapper(Map<String, ?> labels, Work<T, E> work) throws E {
        Scope scope = tag(labels);
        try {
            return work.call();
        } finally {
            scope.end(true);
        }
    }

    /** As {@link #tagWrapper(Map, Work)}, with prepared labels. */
    public static <T, E extends Exception> T tagWrapper(Labels labels, Work<T, E> work) throws E {
        Scope scope = tag(labels);
        try {
            return work.call();
        } finally {
            scope.end(true);
        }
    }

    /**
     * Runs work and returns its value and its own profile: the samples of this thread meanwhile, and of work that runs in its
     * context elsewhere ({@link #wrap(Runnable)}). Waits for the last samples, some milliseconds. Throws its exceptions.
     */
    public static <T, E extends Exception> Capture<T> capture(Work<T, E> work) throws E {
        int number = NativeLibrary.isReady() ? Native.beginCapture() : 0;
        Scope scope = number == 0 ? Scope.NONE : Scope.open(Labels.ofCapture(number));
        boolean isComplete = false;
        T result;
        try {
            result = work.call();
            isComplete = true;
        } finally {
            scope.end(true);
            if (number != 0 && !isComplete) {
                Native.freeCapture(number);
            }
        }
        if (number != 0) {
            Native.endCapture(number);
        }
        return new Capture<>(result, number);
    }

    /** As {@link #tagWrapper(Map, Work)}, for work without a value. */
    public static void tagWrapper(Map<String, ?> labels, Runnable work) {
        Scope scope = tag(labels);
        try {
            work.run();
        } finally {
            scope.end(true);
        }
    }

    /** As {@link #tagWrapper(Map, Runnable)}, with prepared labels. */
    public static void tagWrapper(Labels labels, Runnable work) {
        Scope scope = tag(labels);
        try {
            work.run();
        } finally {
            scope.end(true);
        }
    }

    /**
     * Wraps work so that it runs with this thread's current context (labels and span link) on any thread. For single tasks
     * that are handed to other threads. A stream or an iterator that the work returns runs under the labels of the code that
     * consumes it.
     */
    public static Runnable wrap(Runnable work) {
        return isNull(work, "wrap()") ? null : CapturedContext.capture().wrap(work);
    }

    /** As {@link #wrap(Runnable)}, for work with a value. */
    public static <T> Callable<T> wrap(Callable<T> work) {
        return isNull(work, "wrap()") ? null : CapturedContext.capture().wrap(work);
    }

    /** As {@link #wrap(Runnable)}, for stages of a {@link java.util.concurrent.CompletableFuture}. */
    public static <T> Supplier<T> wrapSupplier(Supplier<T> work) {
        return isNull(work, "wrapSupplier()") ? null : CapturedContext.capture().wrapSupplier(work);
    }

    /** As {@link #wrap(Runnable)}, for a function. */
    public static <T, R> Function<T, R> wrapFunction(Function<T, R> work) {
        return isNull(work, "wrapFunction()") ? null : CapturedContext.capture().wrapFunction(work);
    }

    /** As {@link #wrap(Runnable)}, for a function of two arguments. */
    public static <T, U, R> BiFunction<T, U, R> wrapBiFunction(BiFunction<T, U, R> work) {
        return isNull(work, "wrapBiFunction()") ? null : CapturedContext.capture().wrapBiFunction(work);
    }

    /** As {@link #wrap(Runnable)}, for a consumer. */
    public static <T> Consumer<T> wrapConsumer(Consumer<T> work) {
        return isNull(work, "wrapConsumer()") ? null : CapturedContext.capture().wrapConsumer(work);
    }

    /**
     * An executor that runs each task with the context of the submitting thread. It is an {@link ExecutorService} or {@link
     * ScheduledExecutorService} if the executor is one.
     */
    public static Executor wrap(Executor executor) {
        if (executor instanceof ExecutorService) {
            return wrap((ExecutorService) executor);
        }
        return isNull(executor, "wrap()") ? null : work -> executor.execute(wrap(work));
    }

    /** As {@link #wrap(Executor)}; all other methods are delegated to the executor. */
    public static ExecutorService wrap(ExecutorService executor) {
        if (isNull(executor, "wrap()")) {
            return null;
        }
        return executor instanceof ScheduledExecutorService
                ? new PropagatingScheduler((ScheduledExecutorService) executor)
                : new PropagatingExecutor<>(executor);
    }

    /** As {@link #wrap(Executor)}; periodic work keeps the context of the thread that scheduled it. */
    public static ScheduledExecutorService wrap(ScheduledExecutorService executor) {
        return isNull(executor, "wrap()") ? null : new PropagatingScheduler(executor);
    }

    /**
     * A factory whose threads run with the context of the thread that requested them: for a thread per task, as in
     * structured concurrency. Threads of a pool would keep the context of their first task.
     */
    public static ThreadFactory wrapThreadFactory(ThreadFactory factory) {
        return isNull(factory, "wrapThreadFactory()") ? null : work -> factory.newThread(wrap(work));
    }

    /** Whether an argument of a method that returns null for null is null, which is counted. */
    private static boolean isNull(Object argument, String method) {
        return InvalidArgument.isNull(argument, method, "null is returned");
    }

    private static byte[] json(SpanprofConfig config) {
        return config.toJson().getBytes(StandardCharsets.UTF_8);
    }

    private static void check(List<String> outcome) {
        if (outcome.size() == 3) {
            throw new SpanprofException(outcome.get(0), outcome.get(1), outcome.get(2));
        }
    }

    /** A short program name: that of the JAR, or of the main class. */
    private static String programName() {
        String command = System.getProperty("sun.java.command", "").split(" ", 2)[0];
        if (command.endsWith(".jar")) {
            String file = command.substring(command.lastIndexOf('/') + 1);
            return file.substring(0, file.length() - ".jar".length());
        }
        return command.substring(Math.max(command.lastIndexOf('.'), command.lastIndexOf('/')) + 1);
    }
}
