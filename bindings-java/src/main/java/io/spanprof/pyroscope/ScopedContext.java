package io.spanprof.pyroscope;

import io.spanprof.Scope;
import io.spanprof.Spanprof;

/** Pyroscope's name of a {@link Scope}. */
public final class ScopedContext implements AutoCloseable {
    private final Scope scope;

    public ScopedContext(LabelsSet labels) {
        scope = Spanprof.tag(LabelsSet.labelsOf(labels));
    }

    @Override
    public void close() {
        scope.close();
    }
}
