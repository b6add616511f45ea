package io.spanprof.pyroscope;

/** What an {@link Exporter} would be given. None is ever made: windows are encoded and sent by the library. */
public final class Snapshot {
    private Snapshot() {}
}
