package io.spanprof.pyroscope;

import java.text.MessageFormat;
import java.util.ResourceBundle;

/**
 * The profiler's lines on their way to a logger of Pyroscope's kind, or to the VM's own where there is none, from a level
 * on.
 */
record LinesTo(Logger logger, Logger.Level least) implements System.Logger {
    @Override
    public String getName() {
        return "spanprof";
    }

    /** A warning says that there is no profile or less of one: it is never kept back. */
    @Override
    public boolean isLoggable(Level level) {
        return level.getSeverity() >= Level.WARNING.getSeverity()
                || level != Level.ALL && theirs(level).level >= least.level;
    }

    @Override
    public void log(Level level, ResourceBundle texts, String line, Throwable thrown) {
        say(level, thrown == null ? line : line + ": " + thrown);
    }

    @Override
    public void log(Level level, ResourceBundle texts, String format, Object... arguments) {
        boolean isFormat = arguments != null && arguments.length > 0;
        say(level, isFormat ? MessageFormat.format(format, arguments) : format);
    }

    private void say(Level level, String line) {
        if (!isLoggable(level)) {
            return;
        }
        if (logger == null) {
            System.getLogger(getName()).log(level, line);
        } else {
            // A line may have a `%` of its own.
            logger.log(theirs(level), "%s", line);
        }
    }

    private static Logger.Level theirs(Level level) {
        return switch (level) {
            case ALL, TRACE, DEBUG -> Logger.Level.DEBUG;
            case INFO -> Logger.Level.INFO;
            case WARNING -> Logger.Level.WARN;
            case ERROR, OFF -> Logger.Level.ERROR;
        };
    }
}
