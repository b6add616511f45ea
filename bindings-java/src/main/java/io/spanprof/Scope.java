package io.spanprof;

import java.nio.LongBuffer;
import java.util.Arrays;

/**
 * Labels that are on every sample of this thread, platform or virtual, until it is closed; what was there before is then
 * there again.
 */
public final class Scope implements AutoCloseable {
    static final Scope NONE = new Scope(null, null, true, 0, 0, 0, 0, 0);

    private Thread owner;
    private final LongBuffer words;
    /** What was said before, if anything was. */
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

    /** Labels on top of what the thread says now: theirs win, and their link replaces its when they have one. */
    static Scope open(Labels labels) {
        if (InvalidArgument.isNull(labels, "tag()", "the work runs without labels")) {
            return NONE;
        }
        boolean isEmpty = labels.isEmpty();
        LongBuffer words = isEmpty ? ThreadScope.existing() : ThreadScope.current();
        if (words == null) {
            return NONE;
        }
        // One way through, so that the compilers see one object, which need not be made where it goes nowhere.
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

    /** What the calling thread says now. */
    static long[] wordsHere() {
        LongBuffer own = ThreadScope.existing();
        return own == null ? new long[ThreadScope.WORDS] : ThreadScope.words(own);
    }

    /** What another thread said, in place of what this one says. */
    static Scope replace(long[] said) {
        long[] before = wordsHere();
        if (Arrays.equals(said, before)) {
            return NONE;
        }
        LongBuffer words = ThreadScope.current();
        if (words == null) {
            return NONE;
        }
        ThreadScope.write(words, said);
        return new Scope(Thread.currentThread(), words, false, before[0], before[1], before[2], before[3], before[4]);
    }

    /** Does nothing the second time, and on another thread than the one that opened it. */
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
