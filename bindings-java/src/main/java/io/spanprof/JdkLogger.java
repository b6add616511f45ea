package io.spanprof;

import java.util.logging.Level;
import java.util.logging.Logger;

/** The logger {@code spanprof}: {@link System.Logger}, in Java 8 {@link Logger}. Its first use loads the JDK's logging. */
final class JdkLogger {
    private static final String NAME = "spanprof";

    private JdkLogger() {}

    static boolean isLoggable(boolean isWarning) {
        return LaterApi.EXISTS
                ? System.getLogger(NAME).isLoggable(level(isWarning))
                : OfJava8.LOGGER.isLoggable(OfJava8.level(isWarning));
    }

    static void log(boolean isWarning, String line) {
        if (LaterApi.EXISTS) {
            System.getLogger(NAME).log(level(isWarning), line);
        } else {
            OfJava8.LOGGER.log(OfJava8.level(isWarning), line);
        }
    }

    /** Whether it is the JDK's own, and not of a library that the program has installed. */
    static boolean isOfJdk() {
        if (!LaterApi.EXISTS) {
            return true;
        }
        Module module = System.getLogger(NAME).getClass().getModule();
        return Object.class.getModule().equals(module) || "java.logging".equals(module.getName());
    }

    private static System.Logger.Level level(boolean isWarning) {
        return isWarning ? System.Logger.Level.WARNING : System.Logger.Level.INFO;
    }

    private static final class OfJava8 {
        /** Held, since the JDK's loggers are weakly reachable. */
        static final Logger LOGGER = Logger.getLogger(NAME);

        private OfJava8() {}

        static Level level(boolean isWarning) {
            return isWarning ? Level.WARNING : Level.INFO;
        }
    }
}
