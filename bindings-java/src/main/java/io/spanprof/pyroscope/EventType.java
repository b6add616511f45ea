package io.spanprof.pyroscope;

/** The profiled event. {@link #WALL} is wall time; every other event is CPU time. */
public enum EventType {
    CPU,
    ALLOC,
    LOCK,
    WALL,
    CTIMER,
    ITIMER
}
