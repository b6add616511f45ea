package io.spanprof;

import java.util.concurrent.atomic.AtomicBoolean;

/** The end of the program sends the last window, as {@link Spanprof#stop} does. */
final class AtEnd {
    private static final AtomicBoolean ASKED = new AtomicBoolean();

    private AtEnd() {}

    static void stop() {
        if (ASKED.compareAndSet(false, true)) {
            try {
                Runtime.getRuntime().addShutdownHook(new Thread(null, Spanprof::stop, "spanprof-end", 256 * 1024));
            } catch (IllegalStateException endsAlready) {
                // The program ends while the profiler starts: there is nothing to send.
                ASKED.set(false);
            }
        }
    }
}
