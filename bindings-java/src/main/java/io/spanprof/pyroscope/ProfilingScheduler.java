package io.spanprof.pyroscope;

/** Accepted for compatibility, and never called: {@code uploadInterval} sets the length of a window. */
@FunctionalInterface
public interface ProfilingScheduler {
    void start(ProfilerDelegate profiler);

    default void stop() {}
}
