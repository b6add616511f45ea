package io.spanprof;

import java.util.concurrent.TimeUnit;

/**
 * The daemon thread that waits for the profiler's log lines. It ends when the library has no more lines for it: the profiler
 * has stopped.
 */
final class LogThread {
    /** Number of calls of {@code begin}, and whether the thread runs; guarded by the lock of this class. */
    private static long requests;
    private static boolean isRunning;

    private LogThread() {}

    /** Starts the thread if it does not run. Without memory for a thread, the lines wait for the next call. */
    static synchronized void begin() {
        requests++;
        if (!isRunning) {
            Thread thread = LaterApi.newThread("spanprof-log", new Runnable() {
                @Override
                public void run() {
                    forwardLines();
                }
            });
            try {
                thread.start();
                isRunning = true;
            } catch (OutOfMemoryError noThread) {
                return;
            }
        }
    }

    private static void forwardLines() {
        long seen;
        do {
            seen = requests();
            for (byte[] packed = lines(); packed != null; packed = lines()) {
                HostLog.log(packed);
            }
        } while (!isOver(seen));
    }

    private static byte[] lines() {
        return Native.logLines(TimeUnit.SECONDS.toNanos(60));
    }

    private static synchronized long requests() {
        return requests;
    }

    /** Ends the thread if there was no further call of {@code begin}, so that the VM does not keep this class loader. */
    private static synchronized boolean isOver(long seen) {
        if (requests != seen) {
            return false;
        }
        isRunning = false;
        ShutdownHook.removeIfUnused();
        return true;
    }
}
