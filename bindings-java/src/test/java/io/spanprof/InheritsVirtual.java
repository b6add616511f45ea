package io.spanprof;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;

/**
 * Prints the labels of new virtual threads, and of executors' virtual threads. A separate program: it starts the profiler.
 * Methods of Java 21 are called by reflection: the tests are compiled for Java 17.
 */
public final class InheritsVirtual {
    private InheritsVirtual() {}

    private static Object builder() throws ReflectiveOperationException {
        return Thread.class.getMethod("ofVirtual").invoke(null);
    }

    private static Object call(Object builder, String method, Class<?>[] types, Object... args)
            throws ReflectiveOperationException {
        return Class.forName("java.lang.Thread$Builder").getMethod(method, types).invoke(builder, args);
    }

    private static ThreadFactory factory() throws ReflectiveOperationException {
        return (ThreadFactory) call(builder(), "factory", new Class<?>[0]);
    }

    private static Thread unstarted(Object builder, Runnable work) {
        try {
            return (Thread) call(builder, "unstarted", new Class<?>[] {Runnable.class}, work);
        } catch (ReflectiveOperationException wrong) {
            throw new AssertionError(wrong);
        }
    }

    private static ExecutorService perTask() throws ReflectiveOperationException {
        return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    private static ExecutorService perTask(ThreadFactory factory) throws ReflectiveOperationException {
        return (ExecutorService) Executors.class.getMethod("newThreadPerTaskExecutor", ThreadFactory.class).invoke(null, factory);
    }

    private static String of(FutureTask<String> task, Thread thread) throws Exception {
        thread.start();
        return task.get(30, TimeUnit.SECONDS);
    }

    private static String labelsOfThread(Callable<String> work) throws Exception {
        FutureTask<String> task = new FutureTask<>(work);
        return of(task, unstarted(builder(), task));
    }

    private static String afterWaits() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            Thread.sleep(1);
        }
        return Inherits.labels();
    }

    private static void inScope(List<String> output) throws Exception {
        output.add("thread " + labelsOfThread(InheritsVirtual::afterWaits));
        output.add("grandchild " + labelsOfThread(() -> {
            try (Scope inner = Spanprof.tag(Map.of("b", "2"))) {
                return labelsOfThread(Inherits::labels);
            }
        }));
        output.add("untouched_grandchild " + labelsOfThread(() -> labelsOfThread(Inherits::labels)));
        output.add("platform_grandchild " + labelsOfThread(() -> Inherits.labelsOfThread(Inherits::labels)));
        output.add("per_task " + Inherits.labelsOfExecutor(perTask()));
        output.add("per_task_with_lambda " + Inherits.labelsOfExecutor(perTask(work -> named(work))));
        output.add("per_task_on_platform " + Inherits.labelsOfExecutor(perTask(Thread::new)));
        output.add("pool " + Inherits.labelsOfExecutor(Executors.newFixedThreadPool(1, factory())));
        FutureTask<String> ofFactory = new FutureTask<>(Inherits::labels);
        output.add("factory " + of(ofFactory, factory().newThread(ofFactory)));
        FutureTask<String> alone = new FutureTask<>(Inherits::labels);
        Object builder = call(builder(), "inheritInheritableThreadLocals", new Class<?>[] {boolean.class}, false);
        output.add("without_locals " + of(alone, unstarted(builder, alone)));
        output.add("itself " + Inherits.labels());
    }

    /** A thread with a name, created by a lambda. */
    private static Thread named(Runnable work) {
        try {
            Thread thread = factory().newThread(work);
            thread.setName("named");
            return thread;
        } catch (ReflectiveOperationException wrong) {
            throw new AssertionError(wrong);
        }
    }

    public static void main(String[] args) throws Exception {
        SpanprofConfig.Builder settings = SpanprofConfig.builder().destinations(List.of());
        Spanprof.start(settings.inheritThreads(args[0].equals("yes")).build());
        List<String> output = new ArrayList<>();
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            inScope(output);
        }
        output.add("after " + labelsOfThread(Inherits::labels));
        Spanprof.stop();
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            output.add("stopped " + labelsOfThread(Inherits::labels));
        }
        Spanprof.start(settings.inheritThreads(false).build());
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            output.add("without_it " + labelsOfThread(Inherits::labels));
        }
        Spanprof.stop();
        Spanprof.start(settings.inheritThreads(true).build());
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            output.add("again_with_it " + labelsOfThread(Inherits::labels));
        }
        Spanprof.stop();
        output.forEach(System.out::println);
    }
}
