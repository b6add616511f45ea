package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Requests of two kinds, each with a method of its own, on platform or virtual threads that yield. They open scopes
 * themselves, inherit the labels of the submitting thread, or are wrapped there and called inside another scope.
 */
public final class Requests {
    private Requests() {}

    static double red(int n) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += Math.sqrt(i + sum);
        }
        return sum;
    }

    static double blue(int n) {
        double sum = 1;
        for (int i = 0; i < n; i++) {
            sum += Math.cbrt(i + sum);
        }
        return sum;
    }

    private static double handle(boolean isRed) throws InterruptedException {
        double sum = 0;
        for (int step = 0; step < 4; step++) {
            sum += isRed ? red(200_000) : blue(60_000);
            Thread.sleep(1);
        }
        return sum;
    }

    private static ExecutorService executor(String kind) throws ReflectiveOperationException {
        if (kind.equals("virtual")) {
            // By reflection: the tests are compiled for Java 17.
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        }
        return Executors.newFixedThreadPool(4);
    }

    public static void main(String[] args) throws Exception {
        String labeled = args.length > 3 ? args[3] : "own";
        boolean isInherited = labeled.equals("inherited");
        Spanprof.start(SpanprofConfig.builder().serviceName("requests").sampleRate(1000).fileDirectory(args[0])
                .inheritThreads(isInherited).build());
        ExecutorService executor = executor(args[1]);
        Set<Thread> threads = ConcurrentHashMap.newKeySet();
        double sum = 0;
        for (int round = Integer.parseInt(args[2]); round > 0; round--) {
            List<Future<Double>> results = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                boolean isRed = i % 2 == 0;
                Map<String, String> labels = Map.of("kind", isRed ? "red" : "blue");
                Callable<Double> request = () -> {
                    threads.add(Thread.currentThread());
                    return handle(isRed);
                };
                results.add(switch (labeled) {
                    case "inherited" -> Spanprof.tagWrapper(labels, () -> executor.submit(request));
                    case "wrapped" -> {
                        Callable<Double> wrapped = Spanprof.tagWrapper(labels, () -> Spanprof.wrap(request));
                        yield executor.submit(() -> Spanprof.tagWrapper(Map.of("kind", "of the caller"), wrapped::call));
                    }
                    default -> executor.submit(() -> Spanprof.tagWrapper(labels, request::call));
                });
            }
            for (Future<Double> result : results) {
                sum += result.get();
            }
        }
        executor.shutdown();
        // Requests complete, and an executor of virtual threads terminates, before the threads have ended.
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("sum " + Math.round(sum % 1000));
        Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
