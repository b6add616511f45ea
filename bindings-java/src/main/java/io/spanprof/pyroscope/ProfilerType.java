package io.spanprof.pyroscope;

/** Accepted for compatibility: there is one engine. */
public enum ProfilerType {
    ASYNC,
    JFR
}
