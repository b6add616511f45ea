package io.spanprof;

import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;

/**
 * A thread's context in words that the profiler's signal handler reads on the same thread, or on its carrier. The first
 * word is 0 if there is no context; it is cleared first and written last.
 *
 * <p>A thread references the words as a buffer of the JDK. Long-lived threads, such as a server's after an application is
 * undeployed, keep no reference to the application's classes.
 */
final class ThreadScope {
    /** Label set, trace id in two halves, span id, local root span id. */
    static final int WORDS = 5;

    private static final ThreadLocal<LongBuffer> OF_THREAD = new ThreadLocal<>();
    /**
     * Index after the words of a virtual thread: 0 while its mounts are not tracked, so that handlers cannot find the
     * words.
     */
    private static final int IS_TRACKED = 1 + WORDS;

    private ThreadScope() {}

    /** The calling thread's words; null if it has none yet. */
    static LongBuffer existing() {
        return OF_THREAD.get();
    }

    /** New words for the calling thread; null without the library, or if no row is free. */
    static LongBuffer allocate() {
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
        return buffer;
    }

    /** Whether handlers find the words: they may be those of a virtual thread whose mounts are not tracked. */
    static boolean isTracked(LongBuffer buffer) {
        return buffer.capacity() == IS_TRACKED || buffer.get(IS_TRACKED) != 0;
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
        // The handler runs on this thread: only compiler reordering must be prevented.
        VarHandle.storeStoreFence();
        begin(buffer, labelSet, traceHigh, traceLow, span, root);
    }

    /** As {@link #write}, for a thread without context. */
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
