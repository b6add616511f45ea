package io.spanprof;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * Brings the profiler's few lines to the program's logger: {@link System.Logger} {@code spanprof}, or the one that
 * {@link Spanprof#setLogger} named.
 */
final class HostLog {
    private static volatile System.Logger chosen;
    /** How often lines were asked for, and whether a thread waits for them; under the lock of this class. */
    private static long asked;
    private static boolean isWaiting;
    /** Whether the VM ends: loggers of the JDK may have lost their handlers, which a hook like ours removes. */
    private static volatile boolean programEnds;

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

    static void programEnds() {
        programEnds = true;
    }

    /** The outcome of a call; its lines are logged on this thread, before it returns. */
    static boolean logging(BooleanSupplier call) {
        say(Native.holdLog());
        try {
            return call.getAsBoolean();
        } finally {
            say(Native.heldLines());
        }
    }

    /** The program's logger may fail: that is not our business, and no reason to fail louder. */
    private static void say(System.Logger.Level level, String line) {
        try {
            System.Logger logger = chosen != null ? chosen : System.getLogger("spanprof");
            if (programEnds && level == System.Logger.Level.WARNING && isOfTheJdk(logger)) {
                if (logger.isLoggable(level)) {
                    System.err.println(level + ": " + line);
                }
                return;
            }
            logger.log(level, line);
        } catch (RuntimeException | Error failed) {
            return;
        }
    }

    private static boolean isOfTheJdk(System.Logger logger) {
        return Object.class.getModule().equals(logger.getClass().getModule())
                || "java.logging".equals(logger.getClass().getModule().getName());
    }

    private static void say(byte[] packed) {
        if (packed == null) {
            return;
        }
        List<String> lines = Packed.unpack(packed);
        for (int i = 0; i + 1 < lines.size(); i += 2) {
            boolean isInfo = lines.get(i).equals("info");
            say(isInfo ? System.Logger.Level.INFO : System.Logger.Level.WARNING, lines.get(i + 1));
        }
    }

    private static void bringLines() {
        long seen;
        do {
            seen = asked();
            for (byte[] packed = lines(); packed != null; packed = lines()) {
                say(packed);
            }
        } while (!isOver(seen));
    }

    private static byte[] lines() {
        return Native.logLines(TimeUnit.SECONDS.toNanos(60));
    }

    private static synchronized long asked() {
        return asked;
    }

    /** When no application of this class loader profiles any more, nothing of the class loader stays behind in the VM. */
    private static synchronized boolean isOver(long seen) {
        if (asked != seen) {
            return false;
        }
        isWaiting = false;
        AtEnd.forget();
        return true;
    }
}
