package io.spanprof;

import java.time.Duration;

/** Durations as the library takes them. */
final class Nanoseconds {
    private Nanoseconds() {}

    /** Converts to nanoseconds; saturates instead of throwing on overflow. */
    static long of(Duration time) {
        try {
            return Math.max(0, time.toNanos());
        } catch (ArithmeticException overflow) {
            return time.isNegative() ? 0 : Long.MAX_VALUE;
        }
    }
}
