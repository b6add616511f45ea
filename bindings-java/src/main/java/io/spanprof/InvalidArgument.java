package io.spanprof;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Invalid arguments of API calls, such as null labels. They never throw: each is counted ({@code java.invalid_arguments} in
 * {@code stats()}), and the first one is logged as a warning.
 */
final class InvalidArgument {
    private static final AtomicBoolean IS_REPORTED = new AtomicBoolean();

    private InvalidArgument() {}

    /** Reports an invalid argument and its effect. */
    static void report(String problem, String effect) {
        if (NativeLibrary.isLoaded()) {
            Native.countInvalidArgument();
        }
        if (IS_REPORTED.compareAndSet(false, true)) {
            HostLog.warn("spanprof: " + problem + "; " + effect
                    + ". Further invalid arguments are counted as java.invalid_arguments in stats()");
        }
    }

    /** Returns true for null, and reports it. */
    static boolean isNull(Object argument, String method, String effect) {
        if (argument != null) {
            return false;
        }
        report(method + " was called with null", effect);
        return true;
    }
}
