package io.spanprof;

import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What the scopes open on one thread say, in words that the profiler's signal handler reads on the same thread, or on the
 * one that carries it. The first word is 0 while nothing is said; it is cleared first and written last.
 *
 * <p>A thread keeps the words as a buffer of the JDK's and nothing of ours: threads that live on, as those of a server do
 * when an application is taken away, do not hold on to the application's classes.
 */
final class ThreadScope {
    /** Label set, trace id in two halves, span id, local root span id. */
    static final int WORDS = 5;

    private static final ThreadLocal<ByteBuffer> OF_THREAD = new ThreadLocal<>();
    /** Behind the words of a virtual thread: 0 while its mounts are not told of, so that nobody would find the words. */
    private static final int IS_FOLLOWED = 8 + 8 * WORDS;

    private ThreadScope() {}

    /** The calling thread's, or null: without the library, or beyond the most threads. */
    static ByteBuffer current() {
        ByteBuffer buffer = OF_THREAD.get();
        return buffer != null && isRead(buffer) ? buffer : make();
    }

    /** The calling thread's if it has any yet. */
    static ByteBuffer existing() {
        return OF_THREAD.get();
    }

    private static ByteBuffer make() {
        if (!NativeLibrary.isReady()) {
            return null;
        }
        boolean isVirtual = VirtualThreads.isVirtual(Thread.currentThread());
        ByteBuffer buffer = isVirtual ? Native.virtualBuffer() : Native.threadBuffer();
        if (buffer != null) {
            buffer.order(ByteOrder.nativeOrder());
            OF_THREAD.set(buffer);
            InheritedScope.prepare();
        }
        return buffer;
    }

    private static boolean isRead(ByteBuffer buffer) {
        return buffer.capacity() == IS_FOLLOWED || buffer.getLong(IS_FOLLOWED) != 0;
    }

    /** Whether any scope is open. */
    static boolean isOpen(ByteBuffer buffer) {
        return buffer.getLong(0) != 0;
    }

    static long word(ByteBuffer buffer, int index) {
        return buffer.getLong(8 + 8 * index);
    }

    static long[] words(ByteBuffer buffer) {
        long[] words = new long[WORDS];
        if (isOpen(buffer)) {
            for (int i = 0; i < WORDS; i++) {
                words[i] = word(buffer, i);
            }
        }
        return words;
    }

    static void write(ByteBuffer buffer, long labelSet, long traceHigh, long traceLow, long span, long root) {
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

    static void write(ByteBuffer buffer, long[] words) {
        write(buffer, words[0], words[1], words[2], words[3], words[4]);
    }

    static void clear(ByteBuffer buffer) {
        VarHandle.storeStoreFence();
        buffer.putLong(0, 0);
        VarHandle.storeStoreFence();
    }
}
