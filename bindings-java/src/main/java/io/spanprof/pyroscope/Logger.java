package io.spanprof.pyroscope;

/** Receives the profiler's log lines; set by {@link PyroscopeAgent.Options.Builder#setLogger}. */
@FunctionalInterface
public interface Logger {
    /** Logs a line: a {@link java.util.Formatter} format and its arguments. */
    void log(Level level, String format, Object... arguments);

    /** The severity of a line. */
    enum Level {
        DEBUG(0),
        INFO(1),
        WARN(2),
        ERROR(3);

        /** Increases with severity. */
        public final int level;

        Level(int level) {
            this.level = level;
        }
    }
}
