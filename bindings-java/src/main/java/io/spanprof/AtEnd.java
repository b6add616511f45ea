package io.spanprof;

/** The end of the program sends the last window, as {@link Spanprof#stop} does. */
final class AtEnd {
    private static Thread hook;

    private AtEnd() {}

    static synchronized void stop() {
        if (hook == null) {
            Thread thread = new Thread(null, null, "spanprof-end", 256 * 1024, false) {
                @Override
                public void run() {
                    Spanprof.stop();
                }
            };
            thread.setContextClassLoader(null);
            try {
                Runtime.getRuntime().addShutdownHook(thread);
                hook = thread;
            } catch (IllegalStateException endsAlready) {
                // The program ends while the profiler starts: there is nothing to send.
                return;
            }
        }
    }

    /** There is nothing to send any more: the VM need not keep these classes for the end of the program. */
    static synchronized void forget() {
        if (hook != null && !Native.isRunning()) {
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
                hook = null;
            } catch (IllegalStateException endsAlready) {
                // It is the end, and the hook runs.
                return;
            }
        }
    }
}
