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
 * What new virtual threads say when they begin, and those of executors. A program of its own: it starts the profiler. What
 * came with Java 21 is called by name: the tests are compiled for Java 17.
 */
public final class InheritsVirtual {
    private InheritsVirtual() {}

    private static Object builder() throws ReflectiveOperationException {
        return Thread.class.getMethod("ofVirtual").invoke(null);
    }

    private static Object call(Object builder, String method, Class<?>[] types, Object... words)
            throws ReflectiveOperationException {
        return Class.forName("java.lang.Thread$Builder").getMethod(method, types).invoke(builder, words);
    }

    private static ThreadFactory factory() throws ReflectiveOperationException {
        return (ThreadFactory) call(builder(), "factory", new Class<?>[0]);
    }

    private static Thread made(Object builder, Runnable work) {
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

    private static String ofThread(Callable<String> work) throws Exception {
        FutureTask<String> task = new FutureTask<>(work);
        return of(task, made(builder(), task));
    }

    private static String afterWaits() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            Thread.sleep(1);
        }
        return Inherits.said();
    }

    private static void inScope(List<String> said) throws Exception {
        said.add("thread " + ofThread(InheritsVirtual::afterWaits));
        said.add("grandchild " + ofThread(() -> {
            try (Scope inner = Spanprof.tag(Map.of("b", "2"))) {
                return ofThread(Inherits::said);
            }
        }));
        said.add("untouched_grandchild " + ofThread(() -> ofThread(Inherits::said)));
        said.add("platform_grandchild " + ofThread(() -> Inherits.ofThread(Inherits::said)));
        said.add("per_task " + Inherits.ofExecutor(perTask()));
        said.add("per_task_with_lambda " + Inherits.ofExecutor(perTask(work -> named(work))));
        said.add("per_task_on_platform " + Inherits.ofExecutor(perTask(Thread::new)));
        said.add("pool " + Inherits.ofExecutor(Executors.newFixedThreadPool(1, factory())));
        FutureTask<String> ofFactory = new FutureTask<>(Inherits::said);
        said.add("factory " + of(ofFactory, factory().newThread(ofFactory)));
        FutureTask<String> alone = new FutureTask<>(Inherits::said);
        Object builder = call(builder(), "inheritInheritableThreadLocals", new Class<?>[] {boolean.class}, false);
        said.add("without_locals " + of(alone, made(builder, alone)));
        said.add("itself " + Inherits.said());
    }

    /** As programs do that give their threads names. */
    private static Thread named(Runnable work) {
        try {
            Thread thread = factory().newThread(work);
            thread.setName("named");
            return thread;
        } catch (ReflectiveOperationException wrong) {
            throw new AssertionError(wrong);
        }
    }

    public static void main(String[] words) throws Exception {
        SpanprofConfig.Builder settings = SpanprofConfig.builder().destinations(List.of());
        Spanprof.start(settings.inheritThreads(words[0].equals("yes")).build());
        List<String> said = new ArrayList<>();
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            inScope(said);
        }
        said.add("after " + ofThread(Inherits::said));
        Spanprof.stop();
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            said.add("stopped " + ofThread(Inherits::said));
        }
        Spanprof.start(settings.inheritThreads(false).build());
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            said.add("without_it " + ofThread(Inherits::said));
        }
        Spanprof.stop();
        Spanprof.start(settings.inheritThreads(true).build());
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            said.add("again_with_it " + ofThread(Inherits::said));
        }
        Spanprof.stop();
        said.forEach(System.out::println);
    }
}
