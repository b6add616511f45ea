package io.spanprof;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Arguments that a verb cannot use, such as null labels. A verb never throws because of them: each is counted
 * ({@code java.invalid_arguments} in {@code stats()}), and the first is a warning.
 */
final class InvalidArgument {
    private static final AtomicBoolean IS_REPORTED = new AtomicBoolean();

    private InvalidArgument() {}

    /** What was given, and what happens instead. */
    static void report(String given, String instead) {
        if (NativeLibrary.isLoaded()) {
            Native.countInvalidArgument();
        }
        if (IS_REPORTED.compareAndSet(false, true)) {
            HostLog.warn("spanprof: " + given + "; " + instead
                    + ". Further ones are counted as java.invalid_arguments in stats()");
        }
    }

    /** True for null, which is then reported. */
    static boolean isNull(Object argument, String verb, String instead) {
        if (argument != null) {
            return false;
        }
        report(verb + " was called with null", instead);
        return true;
    }
}
