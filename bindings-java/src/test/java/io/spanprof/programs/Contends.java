package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.concurrent.locks.StampedLock;

/** Threads, platform or virtual, that wait for one lock; each in the method of its label. Prints their true waiting time. */
public final class Contends {
    private static final int WORKERS = 6;
    private static final Object MONITOR = new Object();
    private static final ReentrantLock LOCK = new ReentrantLock();
    private static final ReentrantReadWriteLock READ_WRITE = new ReentrantReadWriteLock();
    private static final Semaphore SEMAPHORE = new Semaphore(1);
    private static final StampedLock STAMPED = new StampedLock();
    private static final AtomicLong WAITED = new AtomicLong();
    private static long held;

    private Contends() {}

    private static void hold(long before) throws InterruptedException {
        WAITED.addAndGet(System.nanoTime() - before);
        held++;
        Thread.sleep(2);
    }

    /** Takes the lock once and holds it for 2 ms. */
    private static void take(String kind) throws InterruptedException {
        long before = System.nanoTime();
        switch (kind) {
            case "monitor":
                synchronized (MONITOR) {
                    hold(before);
                }
                break;
            case "lock":
                LOCK.lock();
                try {
                    hold(before);
                } finally {
                    LOCK.unlock();
                }
                break;
            case "readwrite":
                READ_WRITE.writeLock().lock();
                try {
                    hold(before);
                } finally {
                    READ_WRITE.writeLock().unlock();
                }
                break;
            case "semaphore":
                SEMAPHORE.acquire();
                try {
                    hold(before);
                } finally {
                    SEMAPHORE.release();
                }
                break;
            default:
                long stamp = STAMPED.writeLock();
                try {
                    hold(before);
                } finally {
                    STAMPED.unlockWrite(stamp);
                }
                break;
        }
    }

    static void zero(String kind) throws InterruptedException {
        take(kind);
    }

    static void one(String kind) throws InterruptedException {
        take(kind);
    }

    static void two(String kind) throws InterruptedException {
        take(kind);
    }

    private static Void work(String kind, int label, int rounds) throws InterruptedException {
        // Mount events of virtual threads are on from the first label on.
        Thread.sleep(1);
        for (int round = 0; round < rounds; round++) {
            if (label == 0) {
                zero(kind);
            } else if (label == 1) {
                one(kind);
            } else {
                two(kind);
            }
            Thread.yield();
        }
        return null;
    }

    /** By reflection: the tests are compiled for Java 17. */
    static Thread start(boolean isVirtual, Runnable work) throws ReflectiveOperationException {
        if (isVirtual) {
            return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work);
        }
        Thread thread = new Thread(work);
        thread.start();
        return thread;
    }

    /** Arguments: directory; kind of lock; {@code platform} or {@code virtual}; walk; rounds of each thread. */
    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[4]);
        Spanprof.start(SpanprofConfig.builder().serviceName("contends").set("lock", true).fileDirectory(args[0])
                .set("stackWalk", args[3]).build());
        List<Thread> threads = new ArrayList<>();
        for (int worker = 0; worker < WORKERS; worker++) {
            int label = worker % 3;
            threads.add(start(args[2].equals("virtual"), () -> {
                try {
                    Spanprof.tagWrapper(Collections.singletonMap("site", String.valueOf(label)), () -> work(args[1], label, rounds));
                } catch (InterruptedException unexpected) {
                    throw new IllegalStateException(unexpected);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("waited_ns " + WAITED.get());
        System.out.println("held " + held);
        Map<String, Object> stats = Spanprof.stats();
        System.out.println("waits " + stats.get("runtime.java.lock_waits"));
        System.out.println("lost " + stats.get("runtime.java.lock_waits_lost"));
        Spanprof.stop();
    }
}
