package io.spanprof;

import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;

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

    private static final ThreadLocal<LongBuffer> OF_THREAD = new ThreadLocal<>();
    /** Behind the words of a virtual thread: 0 while its mounts are not told of, so that nobody would find the words. */
    private static final int IS_FOLLOWED = 1 + WORDS;

    private ThreadScope() {}

    /** The calling thread's, or null: without the library, or beyond the most threads. */
    static LongBuffer current() {
        return current(OF_THREAD.get());
    }

    /** As the other, of a thread that has these by now, if any. */
    static LongBuffer current(LongBuffer existing) {
        return existing != null && isRead(existing) ? existing : make();
    }

    /** The calling thread's if it has any yet. */
    static LongBuffer existing() {
        return OF_THREAD.get();
    }

    private static LongBuffer make() {
        if (!NativeLibrary.isReady()) {
            return null;
        }
        boolean isVirtual = VirtualThreads.isVirtual(Thread.currentThread());
        ByteBuffer bytes = isVirtual ? Native.virtualBuffer() : Native.threadBuffer();
        if (bytes == null) {
            return null;
        }
        LongBuffer buffer = bytes.order(ByteOrder.nativeOrder()).asLongBuffer();
        OF_THREAD.set(buffer);
        InheritedScope.prepare();
        return buffer;
    }

    private static boolean isRead(LongBuffer buffer) {
        return buffer.capacity() == IS_FOLLOWED || buffer.get(IS_FOLLOWED) != 0;
    }

    /** Whether any scope is open. */
    static boolean isOpen(LongBuffer buffer) {
        return buffer.get(0) != 0;
    }

    static long word(LongBuffer buffer, int index) {
        return buffer.get(1 + index);
    }

    static long[] words(LongBuffer buffer) {
        long[] words = new long[WORDS];
        if (isOpen(buffer)) {
            for (int i = 0; i < WORDS; i++) {
                words[i] = word(buffer, i);
            }
        }
        return words;
    }

    static void write(LongBuffer buffer, long labelSet, long traceHigh, long traceLow, long span, long root) {
        buffer.put(0, 0);
        // The handler interrupts this very thread: only the compilers must keep the order.
        VarHandle.storeStoreFence();
        begin(buffer, labelSet, traceHigh, traceLow, span, root);
    }

    /** As {@link #write}, where nothing is said. */
    static void begin(LongBuffer buffer, long labelSet, long traceHigh, long traceLow, long span, long root) {
        buffer.put(1, labelSet);
        buffer.put(2, traceHigh);
        buffer.put(3, traceLow);
        buffer.put(4, span);
        buffer.put(5, root);
        VarHandle.storeStoreFence();
        buffer.put(0, (labelSet | traceHigh | traceLow | span | root) != 0 ? 1 : 0);
        VarHandle.storeStoreFence();
    }

    static void write(LongBuffer buffer, long[] words) {
        write(buffer, words[0], words[1], words[2], words[3], words[4]);
    }

    static void clear(LongBuffer buffer) {
        VarHandle.storeStoreFence();
        buffer.put(0, 0);
        VarHandle.storeStoreFence();
    }
}
