package io.spanprof.pyroscope;

/** Takes the profiler's lines, which are few; {@link PyroscopeAgent.Options.Builder#setLogger} names one. */
@FunctionalInterface
public interface Logger {
    /** A line: a format as {@link java.util.Formatter} knows them, and what it formats. */
    void log(Level level, String format, Object... arguments);

    /** How much a line matters. */
    enum Level {
        DEBUG(0),
        INFO(1),
        WARN(2),
        ERROR(3);

        /** Grows with how much it matters. */
        public final int level;

        Level(int level) {
            this.level = level;
        }
    }
}
