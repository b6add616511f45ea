package io.spanprof;

import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Forwards the profiler's log lines to the program's logger: that of the JDK ({@link JdkLogger}), or the one set by {@link
 * Spanprof#setLogger}. Lines go to {@code System.err} until the program uses the JDK's logging. Not here: the thread that
 * waits for lines ({@link LogThread}).
 */
final class HostLog {
    private static final String JDK_LOGGING = "java.util.logging.LogManager";
    private static final long END_MILLIS = 2_000;
    /** Receivers of lines set by the program; null for the default. */
    private static volatile Consumer<String> customInfo;
    private static volatile Consumer<String> customWarning;
    /** Whether the VM shuts down: the JDK's own shutdown hook removes the handlers of its loggers, and their levels. */
    private static volatile boolean programEnds;
    /** Whether the JDK's logger lets information pass, when it was last read before the VM shut down. */
    private static volatile boolean logsInformation = true;

    private HostLog() {}

    static void setLogger(Consumer<String> info, Consumer<String> warn) {
        customInfo = info;
        customWarning = warn;
    }

    static void warn(String line) {
        logPrivileged(true, line);
    }

    /** Reads the level of the JDK's logger. Does not load the JDK's logging: an agent would do so before the program configures it. */
    static void readLevel() {
        try {
            if (customInfo == null && !programEnds && isLoaded(JDK_LOGGING)) {
                logsInformation = JdkLogger.isLoggable(false);
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
        Thread thread = LaterApi.newThread("spanprof-log", new Runnable() {
            @Override
            public void run() {
                log(earlier);
                log(last);
            }
        });
        thread.start();
        try {
            thread.join(END_MILLIS);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** Logs with the permissions of the JAR; to standard error if a security policy denies it. */
    private static void logPrivileged(boolean isWarning, String line) {
        try {
            Privileged.call(new Supplier<Void>() {
                @Override
                public Void get() {
                    log(isWarning, line);
                    return null;
                }
            });
        } catch (SecurityException denied) {
            print(isWarning, line);
        }
    }

    /** Exceptions of the program's logger are ignored. */
    private static void log(boolean isWarning, String line) {
        try {
            Consumer<String> custom = isWarning ? customWarning : customInfo;
            if (custom != null) {
                custom.accept(line);
            } else if (!usesJdkLogging()) {
                print(isWarning, line);
            } else if (programEnds && JdkLogger.isOfJdk() && (isWarning || !hasLoggingConfiguration())) {
                if (JdkLogger.isLoggable(isWarning) && (isWarning || logsInformation)) {
                    print(isWarning, line);
                }
            } else {
                JdkLogger.log(isWarning, line);
                readLevel();
            }
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

    private static void print(boolean isWarning, String line) {
        System.err.println((isWarning ? "WARNING: " : "INFO: ") + line);
    }

    static void log(byte[] packed) {
        if (packed == null) {
            return;
        }
        List<String> lines = Packed.unpack(packed);
        for (int i = 0; i + 1 < lines.size(); i += 2) {
            logPrivileged(lines.get(i).equals("warning"), lines.get(i + 1));
        }
    }
}
