package io.spanprof.pyroscope;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Labels made ready once, switched on and off on the calling thread:
 * {@code context.activate(); try { … } finally { context.deactivate(); }}. What the thread said before is there again.
 */
public final class ConstantContext {
    /** Of more activations than this, none of which was ended, the first are forgotten. */
    private static final int MOST_OPEN = 64;

    private final LabelsSet labels;
    private final ThreadLocal<Deque<Scope>> open = new ThreadLocal<>();

    private ConstantContext(LabelsSet labels) {
        this.labels = labels;
    }

    public static ConstantContext of(LabelsSet labels) {
        return new ConstantContext(labels);
    }

    /** The labels are on every sample of this thread. */
    public void activate() {
        Deque<Scope> scopes = open.get();
        if (scopes == null) {
            scopes = new ArrayDeque<>(1);
            open.set(scopes);
        }
        if (scopes.size() == MOST_OPEN) {
            scopes.removeLast();
        }
        scopes.push(Spanprof.tag(LabelsSet.labelsOf(labels)));
    }

    /** The labels are not any more, as far as this context's last activation on this thread goes. */
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
