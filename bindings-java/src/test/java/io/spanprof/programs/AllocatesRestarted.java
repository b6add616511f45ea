package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Threads that start, allocate and end, while the heap profile is turned on and off. */
public final class AllocatesRestarted {
    private static volatile boolean isDone;
    private static volatile Object sink;

    private AllocatesRestarted() {}

    private static long allocate(int rounds) {
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            byte[][] bytes = new byte[i % 7 + 1][i % 1000];
            sink = bytes;
            sum += bytes.length + String.valueOf(i).length();
        }
        return sum;
    }

    /** Arguments: directory, walk. */
    public static void main(String[] args) throws Exception {
        long expected = allocate(20_000);
        List<Thread> threads = new ArrayList<>();
        long[] wrong = new long[1];
        for (int worker = 0; worker < 3; worker++) {
            Thread thread = new Thread(() -> {
                while (!isDone) {
                    Thread brief = new Thread(() -> {
                        if (allocate(20_000) != expected) {
                            wrong[0]++;
                        }
                    });
                    brief.start();
                    try {
                        brief.join();
                    } catch (InterruptedException unexpected) {
                        throw new IllegalStateException(unexpected);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (int round = 0; round < 10; round++) {
            Spanprof.start(SpanprofConfig.builder().serviceName("allocates").heap(true).cpuBudget(0).heapInterval(16_384)
                    .fileDirectory(args[0]).set("stackWalk", args[1]).build());
            Thread.sleep(100);
            Spanprof.update(SpanprofConfig.of(Map.of("heapInterval", 1)));
            Thread.sleep(10);
            Spanprof.update(SpanprofConfig.of(Map.of("heap", false)));
            Thread.sleep(20);
            Spanprof.update(SpanprofConfig.of(Map.of("heap", true, "heapInterval", 4096)));
            Thread.sleep(50);
            if (round == 9) {
                System.out.println("events " + Spanprof.stats().get("runtime.java.allocation_events"));
            }
            Spanprof.stop();
        }
        isDone = true;
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("wrong " + wrong[0]);
    }
}
