package io.spanprof;

import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Brings the profiler's few lines to the program's logger: {@link System.Logger} {@code spanprof}, or the one that
 * {@link Spanprof#setLogger} named.
 */
final class HostLog {
    private static volatile System.Logger chosen;
    /** How often lines were asked for, and whether a thread waits for them; under the lock of this class. */
    private static long asked;
    private static boolean isWaiting;

    private HostLog() {}

    static void to(System.Logger logger) {
        chosen = logger;
    }

    /** Sees to it that one thread waits for lines, as long as any may come; it never keeps the program alive. */
    static synchronized void begin() {
        asked++;
        if (!isWaiting) {
            Thread thread = new Thread(null, null, "spanprof-log", 256 * 1024, false) {
                @Override
                public void run() {
                    bringLines();
                }
            };
            thread.setDaemon(true);
            thread.setContextClassLoader(null);
            thread.start();
            isWaiting = true;
        }
    }

    static void warn(String line) {
        say(System.Logger.Level.WARNING, line);
    }

    /** The program's logger may fail: that is not our business, and no reason to fail louder. */
    private static void say(System.Logger.Level level, String line) {
        try {
            System.Logger logger = chosen;
            (logger != null ? logger : System.getLogger("spanprof")).log(level, line);
        } catch (RuntimeException | Error failed) {
            return;
        }
    }

    private static void bringLines() {
        long seen;
        do {
            seen = asked();
            for (byte[] packed = lines(); packed != null; packed = lines()) {
                List<String> lines = Packed.unpack(packed);
                for (int i = 0; i + 1 < lines.size(); i += 2) {
                    boolean isInfo = lines.get(i).equals("info");
                    say(isInfo ? System.Logger.Level.INFO : System.Logger.Level.WARNING, lines.get(i + 1));
                }
            }
        } while (!isOver(seen));
    }

    private static byte[] lines() {
        return Native.logLines(TimeUnit.SECONDS.toNanos(60));
    }

    private static synchronized long asked() {
        return asked;
    }

    /** When the profiler stopped, whoever stopped it, nothing of this class loader's stays behind in the VM. */
    private static synchronized boolean isOver(long seen) {
        if (asked != seen) {
            return false;
        }
        isWaiting = false;
        AtEnd.forget();
        return true;
    }
}
