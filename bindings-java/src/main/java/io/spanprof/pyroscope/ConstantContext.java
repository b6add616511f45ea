package io.spanprof.pyroscope;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Prepared labels that are activated and deactivated on the calling thread:
 * {@code context.activate(); try { … } finally { context.deactivate(); }}. Deactivation restores the previous labels.
 */
public final class ConstantContext {
    /** Maximum number of open activations; beyond it the oldest is dropped. */
    private static final int MAX_OPEN = 64;

    private final LabelsSet labels;
    private final ThreadLocal<Deque<Scope>> open = new ThreadLocal<>();

    private ConstantContext(LabelsSet labels) {
        this.labels = labels;
    }

    public static ConstantContext of(LabelsSet labels) {
        return new ConstantContext(labels);
    }

    /** Adds the labels to every sample of this thread. */
    public void activate() {
        Deque<Scope> scopes = open.get();
        if (scopes == null) {
            scopes = new ArrayDeque<>(1);
            open.set(scopes);
        }
        if (scopes.size() == MAX_OPEN) {
            scopes.removeLast();
        }
        scopes.push(Spanprof.tag(LabelsSet.labelsOf(labels)));
    }

    /** Ends this context's last activation on this thread. */
    public void deactivate() {
        Deque<Scope> scopes = open.get();
        if (scopes != null) {
            scopes.pop().close();
            if (scopes.isEmpty()) {
                open.remove();
            }
        }
    }
}
