package io.spanprof;

import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * Forwards the profiler's log lines to the program's logger: {@link System.Logger} {@code spanprof}, or the one set by
 * {@link Spanprof#setLogger}. Lines go to {@code System.err} until the program uses the JDK's logging. Not here: the thread that
 * waits for lines ({@link LogThread}).
 */
final class HostLog {
    private static final String JDK_LOGGING = "java.util.logging.LogManager";
    private static final long END_MILLIS = 2_000;
    private static volatile System.Logger customLogger;
    /** Whether the VM shuts down: the JDK's own shutdown hook removes the handlers of its loggers, and their levels. */
    private static volatile boolean programEnds;
    /** Whether the JDK's logger lets information pass, when it was last read before the VM shut down. */
    private static volatile boolean logsInformation = true;

    private HostLog() {}

    static void setLogger(System.Logger logger) {
        customLogger = logger;
    }

    static void warn(String line) {
        logPrivileged(System.Logger.Level.WARNING, line);
    }

    /** Reads the level of the JDK's logger. Does not load the JDK's logging: an agent would do so before the program configures it. */
    static void readLevel() {
        try {
            if (customLogger == null && !programEnds && isLoaded(JDK_LOGGING)) {
                logsInformation = System.getLogger("spanprof").isLoggable(System.Logger.Level.INFO);
            }
        } catch (RuntimeException | Error failed) {
            return;
        }
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

    /**
     * As {@link #logging}, in a shutdown hook, for which the VM waits: the program's logger has {@link #END_MILLIS}. It may need a lock
     * that a thread of the program holds for ever.
     */
    static void loggingAtEnd(BooleanSupplier call) {
        byte[] earlier = Native.holdLog();
        call.getAsBoolean();
        byte[] last = Native.heldLines();
        Thread thread = new Thread(null, null, "spanprof-log", 256 * 1024, false) {
            @Override
            public void run() {
                log(earlier);
                log(last);
            }
        };
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        thread.start();
        try {
            thread.join(END_MILLIS);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** Logs with the permissions of the JAR; to standard error if a security policy denies it. */
    private static void logPrivileged(System.Logger.Level level, String line) {
        try {
            Privileged.call(new Supplier<Void>() {
                @Override
                public Void get() {
                    log(level, line);
                    return null;
                }
            });
        } catch (SecurityException denied) {
            System.err.println(level + ": " + line);
        }
    }

    /** Exceptions of the program's logger are ignored. */
    private static void log(System.Logger.Level level, String line) {
        try {
            if (customLogger == null && !usesJdkLogging()) {
                System.err.println(level + ": " + line);
                return;
            }
            System.Logger logger = customLogger != null ? customLogger : System.getLogger("spanprof");
            if (programEnds && isJdkLogger(logger) && (level == System.Logger.Level.WARNING || !hasLoggingConfiguration())) {
                if (logger.isLoggable(level) && (level == System.Logger.Level.WARNING || logsInformation)) {
                    System.err.println(level + ": " + line);
                }
                return;
            }
            logger.log(level, line);
            readLevel();
        } catch (SecurityException denied) {
            throw denied;
        } catch (RuntimeException | Error failed) {
            return;
        }
    }

    /**
     * Whether the program uses the JDK's logging. Its first use loads some hundred classes: compiled code of the program becomes
     * invalid thereby, and half a second of compilation follows in a warm web service. Where a resource is missing, which is what
     * warnings are about, classes of the JDK that it initializes ({@code java.security.Security}) stay unusable for the program.
     */
    private static boolean usesJdkLogging() {
        return hasLoggingConfiguration() || isLoaded(JDK_LOGGING) || isLoaded("jdk.internal.logger.LoggerFinderLoader");
    }

    private static boolean isLoaded(String className) {
        try {
            return Native.isLoaded(className);
        } catch (UnsatisfiedLinkError withoutLibrary) {
            return false;
        }
    }

    /** Otherwise the JDK's logging prints information to standard error. */
    private static boolean hasLoggingConfiguration() {
        return System.getProperty("java.util.logging.config.file") != null
                || System.getProperty("java.util.logging.config.class") != null;
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
            logPrivileged(isInfo ? System.Logger.Level.INFO : System.Logger.Level.WARNING, lines.get(i + 1));
        }
    }
}
