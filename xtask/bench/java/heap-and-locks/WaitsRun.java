import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Platform and virtual threads contend for a monitor and a {@code ReentrantLock}, under one profiler. Prints the measured waits as
 * JSON, for {@code xtask/bench/every-language}.
 *
 * <pre>WaitsRun PROFILER NUMBER FOLDER</pre>
 */
final class WaitsRun {
    private static final int THREADS = 8;
    private static final long NANOS = 1_500_000_000L;
    private static final long HELD_NANOS = 1_000_000;

    private static final Object MONITOR = new Object();
    private static final ReentrantLock LOCK = new ReentrantLock();

    /** Waits once and holds the lock; returns the nanoseconds of the wait. */
    private interface Wait {
        long once();
    }

    private WaitsRun() {}

    static long platformMonitor() {
        return monitor();
    }

    static long platformLock() {
        return lock();
    }

    static long virtualMonitor() {
        return monitor();
    }

    static long virtualLock() {
        return lock();
    }

    private static long monitor() {
        long begun = System.nanoTime();
        synchronized (MONITOR) {
            long waited = System.nanoTime() - begun;
            hold();
            return waited;
        }
    }

    private static long lock() {
        long begun = System.nanoTime();
        LOCK.lock();
        try {
            long waited = System.nanoTime() - begun;
            hold();
            return waited;
        } finally {
            LOCK.unlock();
        }
    }

    /** On the processor: a virtual thread that sleeps in a monitor keeps its carrier on older versions. */
    private static void hold() {
        long end = System.nanoTime() + HELD_NANOS;
        while (System.nanoTime() < end) {
            Thread.onSpinWait();
        }
    }

    private static long contended(ExecutorService threads, Wait wait) throws Exception {
        long end = System.nanoTime() + NANOS;
        List<Future<Long>> totals = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            totals.add(threads.submit(() -> {
                long total = 0;
                while (System.nanoTime() < end) {
                    total += wait.once();
                    // Other threads get the lock, which is not fair.
                    LockSupport.parkNanos(HELD_NANOS / 2);
                }
                return total;
            }));
        }
        long total = 0;
        for (Future<Long> one : totals) {
            total += one.get();
        }
        threads.shutdown();
        return total;
    }

    public static void main(String[] words) throws Exception {
        KnownProfiler profiler = KnownProfiler.started(words[0], words[2]);
        Map<String, Long> truth = new TreeMap<>();
        truth.put("platformMonitor", contended(Executors.newFixedThreadPool(THREADS), WaitsRun::platformMonitor));
        truth.put("platformLock", contended(Executors.newFixedThreadPool(THREADS), WaitsRun::platformLock));
        if (Runtime.version().feature() >= 21) {
            truth.put("virtualMonitor", contended(virtualThreads(), WaitsRun::virtualMonitor));
            truth.put("virtualLock", contended(virtualThreads(), WaitsRun::virtualLock));
        }
        profiler.stop();
        List<String> checks = new ArrayList<>();
        truth.forEach((method, nanos) -> checks.add("{\"name\": \"" + method + "\", \"function\": \"" + method + "\", " + profiler.waits()
                + ", \"truth\": " + nanos + "}"));
        System.out.println("{\"checks\": [" + String.join(", ", checks) + "]}");
        System.exit(0);
    }

    /** By reflection: the programs are compiled for Java 17. */
    private static ExecutorService virtualThreads() throws Exception {
        return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }
}
