package io.spanprof.pyroscope;

import java.text.MessageFormat;
import java.util.ResourceBundle;

/**
 * Forwards the profiler's lines from a level on to a logger of Pyroscope's interface, or to the VM's logger if there is
 * none.
 */
final class LoggerAdapter implements System.Logger {
    private final Logger logger;
    private final Logger.Level minimum;

    LoggerAdapter(Logger logger, Logger.Level minimum) {
        this.logger = logger;
        this.minimum = minimum;
    }

    @Override
    public String getName() {
        return "spanprof";
    }

    /** Warnings, which mean missing or incomplete profiles, are always logged. */
    @Override
    public boolean isLoggable(Level level) {
        return level.getSeverity() >= Level.WARNING.getSeverity()
                || level != Level.ALL && pyroscopeLevel(level).compareTo(minimum) >= 0;
    }

    @Override
    public void log(Level level, ResourceBundle texts, String line, Throwable thrown) {
        forward(level, thrown == null ? line : line + ": " + thrown);
    }

    @Override
    public void log(Level level, ResourceBundle texts, String format, Object... arguments) {
        boolean isFormat = arguments != null && arguments.length > 0;
        forward(level, isFormat ? MessageFormat.format(format, arguments) : format);
    }

    private void forward(Level level, String line) {
        if (!isLoggable(level)) {
            return;
        }
        if (logger == null) {
            System.getLogger(getName()).log(level, line);
        } else {
            // The line may contain `%`.
            logger.log(pyroscopeLevel(level), "%s", line);
        }
    }

    private static Logger.Level pyroscopeLevel(Level level) {
        switch (level) {
            case INFO:
                return Logger.Level.INFO;
            case WARNING:
                return Logger.Level.WARN;
            case ERROR:
            case OFF:
                return Logger.Level.ERROR;
            default:
                return Logger.Level.DEBUG;
        }
    }
}
