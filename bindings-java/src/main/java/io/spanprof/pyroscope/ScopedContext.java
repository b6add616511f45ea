package io.spanprof.pyroscope;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import java.util.function.BiConsumer;

/** Pyroscope's name of a {@link Scope}. */
public final class ScopedContext implements AutoCloseable, ProfilerScopedContext {
    private final LabelsSet labels;
    private final Scope scope;

    public ScopedContext(LabelsSet labels) {
        this.labels = labels;
        this.scope = Spanprof.tag(LabelsSet.labelsOf(labels));
    }

    /** {@code previous} is ignored: closing a scope restores the thread's previous labels. */
    public ScopedContext(LabelsSet labels, ScopedContext previous) {
        this(labels);
    }

    @Override
    public void forEachLabel(BiConsumer<String, String> consumer) {
        if (labels != null) {
            labels.forEachLabel(consumer);
        }
    }

    @Override
    public void close() {
        scope.close();
    }
}
