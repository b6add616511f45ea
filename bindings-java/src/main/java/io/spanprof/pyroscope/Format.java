package io.spanprof.pyroscope;

/** Accepted for compatibility: profiles are sent as OTLP. */
public enum Format {
    JFR,
    OTLP
}
