package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/** Threads, platform or virtual, that wait without contention, each in another way. */
public final class WaitsIdle {
    private interface Wait {
        void run(long millis) throws Exception;
    }

    private WaitsIdle() {}

    private static List<Wait> waits(ExecutorService pool) {
        ReentrantLock lock = new ReentrantLock();
        Condition condition = lock.newCondition();
        Object monitor = new Object();
        return Arrays.asList(
                millis -> Thread.sleep(millis),
                millis -> LockSupport.parkNanos(monitor, millis * 1_000_000),
                millis -> {
                    synchronized (monitor) {
                        monitor.wait(millis);
                    }
                },
                millis -> {
                    lock.lock();
                    try {
                        condition.await(millis, TimeUnit.MILLISECONDS);
                    } finally {
                        lock.unlock();
                    }
                },
                millis -> new ArrayBlockingQueue<>(1).poll(millis, TimeUnit.MILLISECONDS),
                millis -> new LinkedBlockingQueue<>().poll(millis, TimeUnit.MILLISECONDS),
                millis -> new SynchronousQueue<>().poll(millis, TimeUnit.MILLISECONDS),
                millis -> new CountDownLatch(1).await(millis, TimeUnit.MILLISECONDS),
                millis -> pool.submit(() -> {
                    Thread.sleep(millis);
                    return null;
                }).get(),
                millis -> CompletableFuture.supplyAsync(() -> {
                    LockSupport.parkNanos(millis * 1_000_000);
                    return null;
                }, pool).get());
    }

    /** Arguments: directory; {@code platform} or {@code virtual}. */
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        Spanprof.start(SpanprofConfig.builder().serviceName("waits").set("lock", true).fileDirectory(args[0]).build());
        List<Thread> threads = new ArrayList<>();
        for (Wait wait : waits(pool)) {
            threads.add(Contends.start(args[1].equals("virtual"), () -> {
                try {
                    for (int round = 0; round < 10; round++) {
                        wait.run(50);
                    }
                } catch (Exception unexpected) {
                    throw new IllegalStateException(unexpected);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("idle_ns " + threads.size() * 500_000_000L);
        Spanprof.stop();
        pool.shutdownNow();
    }
}
