package io.spanprof;

import java.nio.LongBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Labels of every sample of this thread, platform or virtual, until it is closed. Scopes may be closed in any order, each
 * takes its own labels away; only beyond eight open scopes, closing one closes those inside it.
 */
public final class Scope implements AutoCloseable {
    static final Scope NONE = new Scope(null, null, 0, 0, Labels.NONE, 0, 0, 0, 0, 0);

    private Thread owner;
    private final LongBuffer words;
    /** The first word in this scope, see {@link ThreadScope}. */
    private final long inside;
    /** The first word before it; those below are the others, if there was a context. */
    private final long outer;
    private final Labels labels;
    private final long labelSet;
    private final long traceHigh;
    private final long traceLow;
    private final long span;
    private final long root;

    private Scope(Thread owner, LongBuffer words, long inside, long outer, Labels labels, long labelSet, long traceHigh,
            long traceLow, long span, long root) {
        this.owner = owner;
        this.words = words;
        this.inside = inside;
        this.outer = outer;
        this.labels = labels;
        this.labelSet = labelSet;
        this.traceHigh = traceHigh;
        this.traceLow = traceLow;
        this.span = span;
        this.root = root;
    }

    /**
     * Adds labels to the thread's context: new values replace old ones, and a span link in the labels replaces the current
     * one.
     */
    static Scope open(Labels labels) {
        if (InvalidArgument.isNull(labels, "tag()", "the work runs without labels")) {
            return NONE;
        }
        boolean isEmpty = labels.isEmpty();
        LongBuffer words = isEmpty ? ThreadScope.existing() : InheritedScope.words();
        if (words == null) {
            return NONE;
        }
        // A single allocation site lets the JIT compilers eliminate the object by escape analysis.
        long outer = ThreadScope.state(words);
        long state;
        long labelSet = 0;
        long traceHigh = 0;
        long traceLow = 0;
        long span = 0;
        long root = 0;
        if (ThreadScope.isIdle(outer)) {
            state = ThreadScope.inFirst(outer, !isEmpty);
            ThreadScope.begin(words, state, labels.labelSet, labels.traceHigh, labels.traceLow, labels.span, 0);
        } else {
            if ((outer & ThreadScope.HAS_CONTEXT) != 0) {
                labelSet = ThreadScope.word(words, 0);
                traceHigh = ThreadScope.word(words, 1);
                traceLow = ThreadScope.word(words, 2);
                span = ThreadScope.word(words, 3);
                root = ThreadScope.word(words, 4);
            }
            state = ThreadScope.inside(words, outer, labelSet, labels.labelSet, 0)
                    | (isEmpty ? outer & ThreadScope.HAS_CONTEXT : ThreadScope.HAS_CONTEXT);
            boolean hasTrace = labels.hasTrace();
            ThreadScope.write(words, state, LabelSets.merged(labelSet, labels.labelSet),
                    hasTrace ? labels.traceHigh : traceHigh, hasTrace ? labels.traceLow : traceLow,
                    hasTrace || labels.span != 0 ? labels.span : span, hasTrace ? 0 : root);
            if (labels.endpoint != null && (traceHigh | traceLow | root) != 0) {
                Native.nameRequest(ThreadScope.words(words), labels.endpoint.getBytes(StandardCharsets.UTF_8));
            }
        }
        return new Scope(
                Thread.currentThread(), words, state, outer, labels, labelSet, traceHigh, traceLow, span, root);
    }

    /** The calling thread's context. */
    static long[] currentWords() {
        LongBuffer own = ThreadScope.existing();
        return own == null ? new long[ThreadScope.WORDS] : ThreadScope.words(own);
    }

    /** Replaces this thread's context by that of another thread. */
    static Scope replace(long[] context) {
        long[] before = currentWords();
        LongBuffer words = Arrays.equals(context, before) ? ThreadScope.existing() : InheritedScope.words();
        if (words == null) {
            return NONE;
        }
        long outer = ThreadScope.state(words);
        long inside = ThreadScope.inside(words, outer, before[0], context[0], ThreadScope.REPLACES);
        ThreadScope.replace(words, inside, context);
        return new Scope(Thread.currentThread(), words, ThreadScope.state(words), outer, Labels.NONE, before[0],
                before[1], before[2], before[3], before[4]);
    }

    /** Has no effect when called again, or on a thread other than the one that opened it. */
    @Override
    public void close() {
        end(false);
    }

    /** As {@link #close}. Of work that is over, the scopes inside end too. */
    void end(boolean endsInner) {
        Thread thread = owner;
        if (thread == null || thread != Thread.currentThread()) {
            return;
        }
        owner = null;
        if (!ThreadScope.isInnermost(words, inside)) {
            // Fields only, so that escape analysis still eliminates the object.
            ThreadScope.end(words, inside, new long[] {labelSet, traceHigh, traceLow, span, root}, labels, endsInner);
        } else if ((outer & ThreadScope.HAS_CONTEXT) == 0) {
            ThreadScope.putState(words, outer);
        } else {
            ThreadScope.write(words, outer, labelSet, traceHigh, traceLow, span, root);
        }
    }
}
