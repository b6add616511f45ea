package io.spanprof;

import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What the scopes open on one thread say, in words that the profiler's signal handler reads on the same thread, or on the
 * one that carries it. The first word is 0 while nothing is said; it is cleared first and written last.
 */
final class ThreadScope {
    /** Label set, trace id in two halves, span id, local root span id. */
    static final int WORDS = 5;

    private static final ThreadLocal<ThreadScope> OF_THREAD = new ThreadLocal<>();
    /** Behind the words of a virtual thread: 0 while its mounts are not told of, so that nobody would find the words. */
    private static final int IS_FOLLOWED = 8 + 8 * WORDS;

    private final ByteBuffer buffer;
    private final boolean isVirtual;

    private ThreadScope(ByteBuffer buffer, boolean isVirtual) {
        this.buffer = buffer;
        this.isVirtual = isVirtual;
    }

    /** The calling thread's, or null: without the library, or beyond the most threads. */
    static ThreadScope current() {
        ThreadScope scope = OF_THREAD.get();
        return scope != null && scope.isRead() ? scope : make();
    }

    /** The calling thread's if it has any yet. */
    static ThreadScope existing() {
        return OF_THREAD.get();
    }

    private static ThreadScope make() {
        if (!NativeLibrary.isReady()) {
            return null;
        }
        boolean isVirtual = VirtualThreads.isVirtual(Thread.currentThread());
        ByteBuffer buffer = isVirtual ? Native.virtualBuffer() : Native.threadBuffer();
        if (buffer == null) {
            return null;
        }
        ThreadScope scope = new ThreadScope(buffer.order(ByteOrder.nativeOrder()), isVirtual);
        OF_THREAD.set(scope);
        return scope;
    }

    private boolean isRead() {
        return !isVirtual || buffer.getLong(IS_FOLLOWED) != 0;
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
