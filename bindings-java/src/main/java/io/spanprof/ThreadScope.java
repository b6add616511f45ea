package io.spanprof;

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

    /** The calling platform thread's if it has any yet. */
    static ThreadScope existing() {
        return OF_THREAD.get();
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
        return buffer.getLong(0) != 0;
    }

    long word(int index) {
        return buffer.getLong(8 + 8 * index);
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
        buffer.putLong(0, 0);
        // The handler interrupts this very thread: only the compilers must keep the order.
        VarHandle.storeStoreFence();
        buffer.putLong(8, labelSet);
        buffer.putLong(16, traceHigh);
        buffer.putLong(24, traceLow);
        buffer.putLong(32, span);
        buffer.putLong(40, root);
        VarHandle.storeStoreFence();
        buffer.putLong(0, (labelSet | traceHigh | traceLow | span | root) != 0 ? 1 : 0);
        VarHandle.storeStoreFence();
    }

    void write(long[] words) {
        write(words[0], words[1], words[2], words[3], words[4]);
    }

    void clear() {
        VarHandle.storeStoreFence();
        buffer.putLong(0, 0);
        VarHandle.storeStoreFence();
    }
}
