package io.spanprof;

import java.nio.LongBuffer;
import java.util.Arrays;

/**
 * Labels of every sample of this thread, platform or virtual, until it is closed. Closing restores the previous labels.
 */
public final class Scope implements AutoCloseable {
    static final Scope NONE = new Scope(null, null, true, 0, 0, 0, 0, 0);

    private Thread owner;
    private final LongBuffer words;
    /** Whether the thread had no context before this scope; else the words below are that context. */
    private final boolean isOutermost;
    private final long labelSet;
    private final long traceHigh;
    private final long traceLow;
    private final long span;
    private final long root;

    private Scope(
            Thread owner, LongBuffer words, boolean isOutermost, long labelSet, long traceHigh, long traceLow, long span, long root) {
        this.owner = owner;
        this.words = words;
        this.isOutermost = isOutermost;
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
        boolean isOutermost = !ThreadScope.isOpen(words);
        long labelSet = 0;
        long traceHigh = 0;
        long traceLow = 0;
        long span = 0;
        long root = 0;
        if (isOutermost) {
            ThreadScope.begin(words, labels.labelSet, labels.traceHigh, labels.traceLow, labels.span, 0);
        } else {
            labelSet = ThreadScope.word(words, 0);
            traceHigh = ThreadScope.word(words, 1);
            traceLow = ThreadScope.word(words, 2);
            span = ThreadScope.word(words, 3);
            root = ThreadScope.word(words, 4);
            boolean hasTrace = labels.hasTrace();
            ThreadScope.write(words, LabelSets.merged(labelSet, labels.labelSet),
                    hasTrace ? labels.traceHigh : traceHigh, hasTrace ? labels.traceLow : traceLow,
                    hasTrace || labels.span != 0 ? labels.span : span, hasTrace ? 0 : root);
        }
        return new Scope(Thread.currentThread(), words, isOutermost, labelSet, traceHigh, traceLow, span, root);
    }

    /** The calling thread's context. */
    static long[] currentWords() {
        LongBuffer own = ThreadScope.existing();
        return own == null ? new long[ThreadScope.WORDS] : ThreadScope.words(own);
    }

    /** Replaces this thread's context by that of another thread. */
    static Scope replace(long[] context) {
        long[] before = currentWords();
        if (Arrays.equals(context, before)) {
            return NONE;
        }
        LongBuffer words = InheritedScope.words();
        if (words == null) {
            return NONE;
        }
        ThreadScope.write(words, context);
        return new Scope(Thread.currentThread(), words, false, before[0], before[1], before[2], before[3], before[4]);
    }

    /** Has no effect when called again, or on a thread other than the one that opened it. */
    @Override
    public void close() {
        Thread thread = owner;
        if (thread == null || thread != Thread.currentThread()) {
            return;
        }
        owner = null;
        if (isOutermost) {
            ThreadScope.clear(words);
        } else {
            ThreadScope.write(words, labelSet, traceHigh, traceLow, span, root);
        }
    }
}
