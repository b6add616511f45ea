package io.spanprof;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What the scopes open on one platform thread say, in words that the profiler's signal handler reads on the same
 * thread. The first word is 0 while nothing is said; it is cleared first and written last.
 */
final class ThreadScope {
    /** Label set, trace id in two halves, span id, local root span id. */
    static final int WORDS = 5;

    private static final VarHandle WORD =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());
    private static final ThreadLocal<ThreadScope> OF_THREAD = new ThreadLocal<>();

    private final ByteBuffer buffer;

    private ThreadScope(ByteBuffer buffer) {
        this.buffer = buffer;
    }

    /** The calling platform thread's, or null: without the library, or beyond the most threads. */
    static ThreadScope current() {
        ThreadScope scope = OF_THREAD.get();
        return scope != null ? scope : make();
    }

    private static ThreadScope make() {
        if (!NativeLibrary.isReady()) {
            return null;
        }
        ByteBuffer buffer = Native.threadBuffer();
        if (buffer == null) {
            return null;
        }
        ThreadScope scope = new ThreadScope(buffer.order(ByteOrder.nativeOrder()));
        OF_THREAD.set(scope);
        return scope;
    }

    /** Whether any scope is open. */
    boolean isOpen() {
        return (long) WORD.get(buffer, 0) != 0;
    }

    long word(int index) {
        return (long) WORD.get(buffer, 8 + 8 * index);
    }

    long[] words() {
        long[] words = new long[WORDS];
        if (isOpen()) {
            for (int i = 0; i < WORDS; i++) {
                words[i] = word(i);
            }
        }
        return words;
    }

    void write(long labelSet, long traceHigh, long traceLow, long span, long root) {
        WORD.setOpaque(buffer, 0, 0L);
        // The handler interrupts this very thread: only the compilers must keep the order.
        VarHandle.storeStoreFence();
        WORD.setOpaque(buffer, 8, labelSet);
        WORD.setOpaque(buffer, 16, traceHigh);
        WORD.setOpaque(buffer, 24, traceLow);
        WORD.setOpaque(buffer, 32, span);
        WORD.setOpaque(buffer, 40, root);
        WORD.setRelease(buffer, 0, (labelSet | traceHigh | traceLow | span | root) != 0 ? 1L : 0L);
    }

    void write(long[] words) {
        write(words[0], words[1], words[2], words[3], words[4]);
    }

    void clear() {
        WORD.setRelease(buffer, 0, 0L);
    }
}
