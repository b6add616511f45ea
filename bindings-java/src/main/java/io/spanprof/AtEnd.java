package io.spanprof;

/** Stops the profiler at the end of the program, whoever started it, and sends the last window. */
final class AtEnd {
    private static Thread hook;

    private AtEnd() {}

    static synchronized void stop() {
        if (hook == null) {
            Thread thread = new Thread(null, null, "spanprof-end", 256 * 1024, false) {
                @Override
                public void run() {
                    HostLog.programEnds();
                    HostLog.logging(() -> Native.stop(null));
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

    /** No application of these classes profiles any more: the VM need not keep them for the end of the program. */
    static synchronized void forget() {
        if (hook != null && !Native.isHeld()) {
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
