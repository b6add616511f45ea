package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/** Threads that wait for locks, allocate, start and end, while all profiles are turned on and off. */
public final class ContendsRestarted {
    private static final Object MONITOR = new Object();
    private static final ReentrantLock LOCK = new ReentrantLock();
    private static volatile boolean isDone;
    private static volatile Object sink;
    private static long inMonitor;
    private static long inLock;

    private ContendsRestarted() {}

    private static void step(int i) {
        synchronized (MONITOR) {
            inMonitor++;
            sink = new byte[i % 3000];
            if (i % 50 == 0) {
                Thread.yield();
            }
        }
        LOCK.lock();
        try {
            inLock++;
            sink = new byte[i % 3000][];
        } finally {
            LOCK.unlock();
        }
    }

    private static void contend() {
        for (int i = 0; i < 200; i++) {
            step(i);
        }
    }

    /** Arguments: directory, walk. */
    public static void main(String[] args) throws Exception {
        boolean hasVirtual = Runtime.version().feature() >= 21;
        List<Thread> threads = new ArrayList<>();
        long[] rounds = new long[6];
        for (int worker = 0; worker < rounds.length; worker++) {
            int number = worker;
            threads.add(Contends.start(false, () -> {
                try {
                    while (!isDone) {
                        Thread brief = Contends.start(hasVirtual && number % 2 == 0, ContendsRestarted::contend);
                        brief.join();
                        rounds[number]++;
                    }
                } catch (ReflectiveOperationException | InterruptedException unexpected) {
                    throw new IllegalStateException(unexpected);
                }
            }));
        }
        long waits = 0;
        for (int round = 0; round < 10; round++) {
            Spanprof.start(SpanprofConfig.builder().serviceName("contends").set("profiles", "all").set("wall", true)
                    .fileDirectory(args[0]).set("stackWalk", args[1]).build());
            Thread.sleep(100);
            Spanprof.update(SpanprofConfig.of(Map.of("lockThreshold", 0)));
            Thread.sleep(50);
            Spanprof.update(SpanprofConfig.of(Map.of("lock", false)));
            Thread.sleep(20);
            Spanprof.update(SpanprofConfig.of(Map.of("lock", true)));
            Thread.sleep(50);
            waits = Long.parseLong(String.valueOf(Spanprof.stats().get("runtime.java.lock_waits")));
            Spanprof.stop();
        }
        isDone = true;
        for (Thread thread : threads) {
            thread.join();
        }
        long steps = 0;
        for (long part : rounds) {
            steps += part * 200;
        }
        System.out.println("waits " + waits);
        System.out.println("wrong " + (Math.abs(steps - inMonitor) + Math.abs(steps - inLock)));
    }
}
