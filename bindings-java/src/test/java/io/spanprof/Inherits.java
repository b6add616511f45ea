package io.spanprof;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/** What new threads say when they begin, and their executors' threads. A program of its own: it starts the profiler. */
public final class Inherits {
    private Inherits() {}

    static String said() {
        return Packed.unpack(Native.labelsOf((int) Scope.wordsHere()[0])).toString();
    }

    private static String of(FutureTask<String> task, Thread thread) throws Exception {
        thread.start();
        return task.get(30, TimeUnit.SECONDS);
    }

    static String ofThread(Callable<String> work) throws Exception {
        FutureTask<String> task = new FutureTask<>(work);
        return of(task, new Thread(task));
    }

    /** A thread whose making reaches no scope: it is made before, and started within. */
    static String madeBefore(Map<String, String> labels) throws Exception {
        FutureTask<String> task = new FutureTask<>(Inherits::said);
        Thread thread = new Thread(task);
        try (Scope scope = Spanprof.tag(labels)) {
            return of(task, thread);
        }
    }

    static String ofExecutor(ExecutorService executor) throws Exception {
        try {
            return executor.submit(Inherits::said).get(30, TimeUnit.SECONDS);
        } finally {
            executor.shutdown();
        }
    }

    public static void main(String[] words) throws Exception {
        Spanprof.start(SpanprofConfig.builder().destinations(List.of()).inheritThreads(words[0].equals("yes")).build());
        List<String> said = new ArrayList<>();
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            said.add("thread " + ofThread(Inherits::said));
            said.add("grandchild " + ofThread(() -> {
                try (Scope inner = Spanprof.tag(Map.of("b", "2"))) {
                    return ofThread(Inherits::said);
                }
            }));
            said.add("untouched_grandchild " + ofThread(() -> ofThread(Inherits::said)));
            said.add("pool " + ofExecutor(Executors.newFixedThreadPool(1)));
            said.add("pool_with_lambda " + ofExecutor(Executors.newFixedThreadPool(1, work -> new Thread(work))));
            said.add("fork_join " + ofExecutor(new ForkJoinPool(1)));
            said.add("itself " + said());
        }
        said.add("before " + madeBefore(Map.of("a", "1")));
        said.add("after " + ofThread(Inherits::said));
        Spanprof.stop();
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            said.add("stopped " + ofThread(Inherits::said));
        }
        Spanprof.start(SpanprofConfig.builder().destinations(List.of()).inheritThreads(false).build());
        try (Scope scope = Spanprof.tag(Map.of("a", "1"))) {
            said.add("without_it " + ofThread(Inherits::said));
        }
        Spanprof.stop();
        said.forEach(System.out::println);
    }
}
