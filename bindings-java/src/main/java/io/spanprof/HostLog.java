package io.spanprof;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** Brings the profiler's few lines to {@link System.Logger} {@code spanprof}. */
final class HostLog {
    private static final AtomicBoolean BEGUN = new AtomicBoolean();

    private HostLog() {}

    /** Starts the one thread that waits for lines; it never keeps the program alive. */
    static void begin() {
        if (!BEGUN.compareAndSet(false, true)) {
            return;
        }
        Thread thread = new Thread(null, HostLog::run, "spanprof-log", 256 * 1024);
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        thread.start();
    }

    static void warn(String line) {
        System.getLogger("spanprof").log(System.Logger.Level.WARNING, line);
    }

    private static void run() {
        while (true) {
            try {
                List<String> lines = Packed.unpack(Native.logLines(TimeUnit.SECONDS.toNanos(60)));
                for (int i = 0; i + 1 < lines.size(); i += 2) {
                    boolean isInfo = lines.get(i).equals("info");
                    System.Logger.Level level = isInfo ? System.Logger.Level.INFO : System.Logger.Level.WARNING;
                    System.getLogger("spanprof").log(level, lines.get(i + 1));
                }
            } catch (RuntimeException | Error failed) {
                // The host's logger failed: not our business, and no reason to fail louder.
                return;
            }
        }
    }
}
