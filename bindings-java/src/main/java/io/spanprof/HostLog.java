package io.spanprof;

import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * Forwards the profiler's log lines to the program's logger: {@link System.Logger} {@code spanprof}, or the one set by
 * {@link Spanprof#setLogger}. Information goes to {@code System.err} until the program uses the JDK's logging. Not here: the
 * thread that waits for lines ({@link LogThread}).
 */
final class HostLog {
    private static volatile System.Logger customLogger;
    /** Whether the VM shuts down: the JDK's own shutdown hook removes the handlers of its loggers. */
    private static volatile boolean programEnds;

    private HostLog() {}

    static void setLogger(System.Logger logger) {
        customLogger = logger;
    }

    static void warn(String line) {
        log(System.Logger.Level.WARNING, line);
    }

    static void programEnds() {
        programEnds = true;
    }

    /** The result of a call; its log lines are logged on this thread before it returns. */
    static boolean logging(BooleanSupplier call) {
        log(Native.holdLog());
        try {
            return call.getAsBoolean();
        } finally {
            log(Native.heldLines());
        }
    }

    /** Exceptions of the program's logger are ignored. */
    private static void log(System.Logger.Level level, String line) {
        try {
            if (customLogger == null && level == System.Logger.Level.INFO && !usesJdkLogging()) {
                System.err.println(level + ": " + line);
                return;
            }
            System.Logger logger = customLogger != null ? customLogger : System.getLogger("spanprof");
            if (programEnds && level == System.Logger.Level.WARNING && isJdkLogger(logger)) {
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

    /**
     * Whether the program uses the JDK's logging. Its first use loads some hundred classes: compiled code of the program becomes
     * invalid thereby, and half a second of compilation follows in a warm web service. Information alone is not worth that.
     */
    private static boolean usesJdkLogging() {
        return System.getProperty("java.util.logging.config.file") != null
                || System.getProperty("java.util.logging.config.class") != null
                || Native.isLoaded("java.util.logging.LogManager")
                || Native.isLoaded("jdk.internal.logger.LoggerFinderLoader");
    }

    private static boolean isJdkLogger(System.Logger logger) {
        return Object.class.getModule().equals(logger.getClass().getModule())
                || "java.logging".equals(logger.getClass().getModule().getName());
    }

    static void log(byte[] packed) {
        if (packed == null) {
            return;
        }
        List<String> lines = Packed.unpack(packed);
        for (int i = 0; i + 1 < lines.size(); i += 2) {
            boolean isInfo = !lines.get(i).equals("warning");
            log(isInfo ? System.Logger.Level.INFO : System.Logger.Level.WARNING, lines.get(i + 1));
        }
    }
}
