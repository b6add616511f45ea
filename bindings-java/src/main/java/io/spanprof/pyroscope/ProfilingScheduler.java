package io.spanprof.pyroscope;

/** Accepted for compatibility, and never called: {@code uploadInterval} says when a window ends. */
@FunctionalInterface
public interface ProfilingScheduler {
    void start(ProfilerDelegate profiler);

    default void stop() {}
}
