package io.spanprof.pyroscope;

/** Accepted for compatibility, and never called: profiles go to the destinations of the configuration. */
@FunctionalInterface
public interface Exporter {
    void export(Snapshot snapshot);

    default void stop() {}
}
