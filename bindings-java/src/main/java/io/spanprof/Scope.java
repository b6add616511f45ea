package io.spanprof;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Labels that are on every sample of this thread, platform or virtual, until it is closed; what was there before is then
 * there again.
 */
public final class Scope implements AutoCloseable {
    static final Scope NONE = new Scope(null, null);

    private Thread owner;
    private final ByteBuffer words;
    private boolean outermost = true;
    private long labelSet;
    private long traceHigh;
    private long traceLow;
    private long span;
    private long root;

    private Scope(Thread owner, ByteBuffer words) {
        this.owner = owner;
        this.words = words;
    }

    /** Prepared labels on top of what the thread says now. */
    static Scope open(Labels labels) {
        ByteBuffer words = labels.isEmpty ? ThreadScope.existing() : ThreadScope.current();
        if (words == null) {
            return NONE;
        }
        Scope scope = new Scope(Thread.currentThread(), words);
        if (!ThreadScope.isOpen(words)) {
            ThreadScope.write(words, labels.words);
            return scope;
        }
        scope.remember(words);
        if (!labels.isEmpty) {
            long[] merged = ThreadScope.words(words);
            Native.merge(merged, labels.words);
            ThreadScope.write(words, merged);
        }
        return scope;
    }

    /** What the calling thread says now. */
    static long[] wordsHere() {
        ByteBuffer own = ThreadScope.existing();
        return own == null ? new long[ThreadScope.WORDS] : ThreadScope.words(own);
    }

    /** What another thread said, in place of what this one says. */
    static Scope replace(long[] said) {
        long[] before = wordsHere();
        if (Arrays.equals(said, before)) {
            return NONE;
        }
        ByteBuffer words = ThreadScope.current();
        if (words == null) {
            return NONE;
        }
        Scope scope = new Scope(Thread.currentThread(), words);
        scope.remember(before[0], before[1], before[2], before[3], before[4]);
        ThreadScope.write(words, said);
        return scope;
    }

    private void remember(ByteBuffer words) {
        remember(ThreadScope.word(words, 0), ThreadScope.word(words, 1), ThreadScope.word(words, 2),
                ThreadScope.word(words, 3), ThreadScope.word(words, 4));
    }

    private void remember(long labelSet, long traceHigh, long traceLow, long span, long root) {
        outermost = false;
        this.labelSet = labelSet;
        this.traceHigh = traceHigh;
        this.traceLow = traceLow;
        this.span = span;
        this.root = root;
    }

    /** Does nothing the second time, and on another thread than the one that opened it. */
    @Override
    public void close() {
        Thread thread = owner;
        if (thread == null || thread != Thread.currentThread()) {
            return;
        }
        owner = null;
        if (outermost) {
            ThreadScope.clear(words);
        } else {
            ThreadScope.write(words, labelSet, traceHigh, traceLow, span, root);
        }
    }
}
