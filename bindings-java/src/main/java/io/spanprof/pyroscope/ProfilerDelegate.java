package io.spanprof.pyroscope;

/** Accepted for compatibility, and never called: there is one engine. */
public interface ProfilerDelegate {
    void start();

    void stop();
}
