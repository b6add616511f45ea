package io.spanprof.pyroscope;

/** What is profiled. Only {@link #WALL} differs: every other name is CPU time. */
public enum EventType {
    CPU,
    ALLOC,
    LOCK,
    WALL,
    CTIMER,
    ITIMER
}
