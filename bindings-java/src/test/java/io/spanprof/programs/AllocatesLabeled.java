package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Threads, platform or virtual, each of which allocates in the method of its label while others do the same. */
public final class AllocatesLabeled {
    private static final int WORKERS = 12;
    private static volatile Object sink;

    private AllocatesLabeled() {}

    static void zero() {
        sink = new byte[1000];
    }

    static void one() {
        sink = new byte[1000];
    }

    static void two() {
        sink = new byte[1000];
    }

    /** Allocates 64 MiB; yields the carrier often. */
    private static void work(int label) {
        for (int round = 0; round < 64; round++) {
            for (int i = 0; i < 1024; i++) {
                if (label == 0) {
                    zero();
                } else if (label == 1) {
                    one();
                } else {
                    two();
                }
            }
            if (round % 4 == 0) {
                Thread.yield();
            }
        }
    }

    /** By reflection: the tests are compiled for Java 17. */
    private static Thread start(boolean isVirtual, Runnable work) throws ReflectiveOperationException {
        if (isVirtual) {
            return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work);
        }
        Thread thread = new Thread(work);
        thread.start();
        return thread;
    }

    /** Arguments: directory, {@code virtual} or {@code platform}. */
    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("allocates").heap(true).cpuBudget(0).heapInterval(131_072)
                .fileDirectory(args[0]).build());
        List<Thread> threads = new ArrayList<>();
        for (int worker = 0; worker < WORKERS; worker++) {
            int label = worker % 3;
            threads.add(start(args[1].equals("virtual"),
                    () -> Spanprof.tagWrapper(Collections.singletonMap("site", String.valueOf(label)), () -> {
                        // Mount events are on from the first label on.
                        Thread.yield();
                        work(label);
                    })));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("lost " + Spanprof.stats().get("dropped.heap_ring_full"));
        Spanprof.stop();
        System.out.println("bytes " + (WORKERS * 64L * 1024 * 1016));
    }
}
