package io.spanprof;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/** Prints the labels of new threads, and of executors' threads. A separate program: it starts the profiler. */
public final class Inherits {
    private Inherits() {}

    static String labels() {
        return Packed.unpack(Native.labelsOf((int) Scope.currentWords()[0])).toString();
    }

    private static String of(FutureTask<String> task, Thread thread) throws Exception {
        thread.start();
        return task.get(30, TimeUnit.SECONDS);
    }

    static String labelsOfThread(Callable<String> work) throws Exception {
        FutureTask<String> task = new FutureTask<>(work);
        return of(task, new Thread(task));
    }

    /** A thread created before a scope and started within it. */
    static String labelsOfThreadCreatedBefore(Map<String, String> labels) throws Exception {
        FutureTask<String> task = new FutureTask<>(Inherits::labels);
        Thread thread = new Thread(task);
        try (Scope scope = Spanprof.tag(labels)) {
            return of(task, thread);
        }
    }

    static String labelsOfExecutor(ExecutorService executor) throws Exception {
        try {
            return executor.submit(Inherits::labels).get(30, TimeUnit.SECONDS);
        } finally {
            executor.shutdown();
        }
    }

    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().destinations(Collections.emptyList()).inheritThreads(args[0].equals("yes")).build());
        List<String> output = new ArrayList<>();
        try (Scope scope = Spanprof.tag(Collections.singletonMap("a", "1"))) {
            output.add("thread " + labelsOfThread(Inherits::labels));
            output.add("grandchild " + labelsOfThread(() -> {
                try (Scope inner = Spanprof.tag(Collections.singletonMap("b", "2"))) {
                    return labelsOfThread(Inherits::labels);
                }
            }));
            output.add("untouched_grandchild " + labelsOfThread(() -> labelsOfThread(Inherits::labels)));
            output.add("pool " + labelsOfExecutor(Executors.newFixedThreadPool(1)));
            output.add("pool_with_lambda " + labelsOfExecutor(Executors.newFixedThreadPool(1, work -> new Thread(work))));
            output.add("fork_join " + labelsOfExecutor(new ForkJoinPool(1)));
            output.add("itself " + labels());
        }
        output.add("before " + labelsOfThreadCreatedBefore(Collections.singletonMap("a", "1")));
        output.add("after " + labelsOfThread(Inherits::labels));
        Spanprof.stop();
        try (Scope scope = Spanprof.tag(Collections.singletonMap("a", "1"))) {
            output.add("stopped " + labelsOfThread(Inherits::labels));
        }
        Spanprof.start(SpanprofConfig.builder().destinations(Collections.emptyList()).inheritThreads(false).build());
        try (Scope scope = Spanprof.tag(Collections.singletonMap("a", "1"))) {
            output.add("without_it " + labelsOfThread(Inherits::labels));
        }
        Spanprof.stop();
        output.forEach(System.out::println);
    }
}
