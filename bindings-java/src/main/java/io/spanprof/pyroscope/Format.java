package io.spanprof.pyroscope;

/** Accepted for compatibility: profiles travel as OTLP. */
public enum Format {
    JFR,
    OTLP
}
