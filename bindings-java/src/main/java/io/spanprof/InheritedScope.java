package io.spanprof;

import java.nio.LongBuffer;

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

    private static final ThreadLocal<long[]> INHERITED = new InheritableThreadLocal<long[]>() {
        @Override
        protected long[] childValue(long[] own) {
            try {
                LongBuffer words = ThreadScope.existing();
                boolean hasContext = words != null && ThreadScope.isOpen(words);
                boolean isInherited = hasContext && Native.inherit(InheritedScope.class)
                        && !OfCreation.STACK.isPooled();
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

    /** Initialized only if threads inherit: a security policy may deny it. */
    private static final class OfCreation {
        static final CreationStack STACK = Privileged.call(CreationStack::new);

        private OfCreation() {}
    }
}
