package io.spanprof;

/** The shutdown hook: stops the profiler at the end of the program and sends the last window. */
final class ShutdownHook {
    private static Thread hook;

    private ShutdownHook() {}

    static synchronized void install() {
        HostLog.readLevel();
        if (hook == null) {
            Thread thread = LaterApi.newThread("spanprof-end", new Runnable() {
                @Override
                public void run() {
                    HostLog.programEnds();
                    HostLog.loggingAtEnd(() -> Native.stop(true));
                }
            });
            try {
                Runtime.getRuntime().addShutdownHook(thread);
                hook = thread;
            } catch (IllegalStateException isShuttingDown) {
                // The program ends while the profiler starts: no window is open.
                return;
            }
        }
    }

    /**
     * Removes the hook if no application that uses these classes holds the profiler, so that the VM does not keep the
     * classes.
     */
    static synchronized void removeIfUnused() {
        if (hook != null && !Native.isHeld()) {
            try {
                Thread unused = hook;
                Privileged.call(() -> Runtime.getRuntime().removeShutdownHook(unused));
                hook = null;
            } catch (IllegalStateException isShuttingDown) {
                // The VM is shutting down, and the hook runs.
                return;
            }
        }
    }
}
