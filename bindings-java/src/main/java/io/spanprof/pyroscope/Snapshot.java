package io.spanprof.pyroscope;

/** The argument of an {@link Exporter}. Never created: the library encodes and sends windows. */
public final class Snapshot {
    private Snapshot() {}
}
