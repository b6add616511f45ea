package io.spanprof;

import java.nio.LongBuffer;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadFactory;

/**
 * Context that a new thread, platform or virtual, inherits from its creator if {@code inheritThreads} is set. A thread
 * created by a factory belongs to an executor and works for other requests; it inherits nothing, unless the executor
 * creates one thread per task.
 *
 * <p>The JDK computes the inherited value when a thread is created; the new thread reads it when it starts. The value is an
 * array, so that long-lived threads keep no reference to these classes.
 */
final class InheritedScope {
    private static final long[] EMPTY = {};
    /** Upper bound of the frames searched for a factory. */
    private static final int MAX_FRAMES = 64;
    /** Executors that create one thread per task; by name, since older Java versions lack them. */
    private static final Set<String> THREAD_PER_TASK = Set.of("java.util.concurrent.ThreadPerTaskExecutor",
            "java.util.concurrent.StructuredTaskScope", "java.util.concurrent.StructuredTaskScopeImpl");

    private static final ThreadLocal<long[]> INHERITED = new InheritableThreadLocal<>() {
        @Override
        protected long[] childValue(long[] own) {
            try {
                LongBuffer words = ThreadScope.existing();
                boolean hasContext = words != null && ThreadScope.isOpen(words);
                boolean isInherited = hasContext && Native.inherit(InheritedScope.class)
                        && !CreationStack.WALKER.walk(frames -> isPooled(frames.limit(MAX_FRAMES).iterator()));
                return isInherited ? ThreadScope.words(words) : EMPTY;
            } catch (RuntimeException | Error failed) {
                // An exception here would stop the program from creating the thread.
                return EMPTY;
            }
        }
    };

    private InheritedScope() {}

    /** The words of the calling thread, which its threads inherit; null without the library, or if no row is free. */
    static LongBuffer words() {
        return words(ThreadScope.existing());
    }

    /** As {@link #words()}, for a thread whose words, if any, are {@code existing}. */
    static LongBuffer words(LongBuffer existing) {
        if (existing != null && ThreadScope.isTracked(existing)) {
            return existing;
        }
        LongBuffer allocated = ThreadScope.allocate();
        if (allocated != null && Native.inherit(InheritedScope.class)) {
            INHERITED.set(EMPTY);
        }
        return allocated;
    }

    /** Called by the library on each new thread, before its work. */
    private static void begin() {
        long[] inherited = INHERITED.get();
        if (inherited == null) {
            // `get` has created an entry, which threads created by this one would inherit.
            INHERITED.remove();
        } else if (inherited.length == ThreadScope.WORDS) {
            LongBuffer words = words();
            if (words != null) {
                ThreadScope.replace(words, ThreadScope.state(words), inherited);
            }
        }
    }

    /** Whether a factory creates the thread, and its caller does not create one thread per task. */
    private static boolean isPooled(Iterator<StackWalker.StackFrame> frames) {
        boolean isPooled = false;
        boolean wasFactory = false;
        while (frames.hasNext()) {
            StackWalker.StackFrame frame = frames.next();
            if (isFactory(frame)) {
                isPooled = true;
                wasFactory = true;
            } else if (wasFactory) {
                if (THREAD_PER_TASK.contains(frame.getClassName())) {
                    return false;
                }
                wasFactory = false;
            }
        }
        return isPooled;
    }

    private static boolean isFactory(StackWalker.StackFrame frame) {
        Class<?> type = frame.getDeclaringClass();
        return frame.getMethodName().equals("newThread")
                && (ThreadFactory.class.isAssignableFrom(type)
                        || ForkJoinPool.ForkJoinWorkerThreadFactory.class.isAssignableFrom(type));
    }

    /** Initialized only if threads inherit: a security policy may deny it. */
    private static final class CreationStack {
        /** A lambda factory has a hidden frame. */
        static final StackWalker WALKER = Privileged.call(() -> StackWalker.getInstance(
                Set.of(StackWalker.Option.RETAIN_CLASS_REFERENCE, StackWalker.Option.SHOW_HIDDEN_FRAMES)));

        private CreationStack() {}
    }
}
