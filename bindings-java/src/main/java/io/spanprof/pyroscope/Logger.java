package io.spanprof.pyroscope;

/** Receives the profiler's log lines; set by {@link PyroscopeAgent.Options.Builder#setLogger}. */
@FunctionalInterface
public interface Logger {
    /** Logs a line: a {@link java.util.Formatter} format and its arguments. */
    void log(Level level, String format, Object... arguments);

    /** The severity of a line, in ascending order. */
    enum Level {
        DEBUG,
        INFO,
        WARN,
        ERROR
    }
}
