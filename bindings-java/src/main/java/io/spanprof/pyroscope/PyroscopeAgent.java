package io.spanprof.pyroscope;

import io.spanprof.Spanprof;

/** Pyroscope's names of the verbs. */
public final class PyroscopeAgent {
    private PyroscopeAgent() {}

    /** Starts with what the environment says. */
    public static void start() {
        Spanprof.start();
    }

    public static void start(Config config) {
        Spanprof.start(config.translated());
    }

    public static void stop() {
        Spanprof.stop();
    }

    public static boolean isStarted() {
        return Spanprof.isRunning();
    }
}
