package io.spanprof;

import java.nio.ByteBuffer;
import java.util.Set;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadFactory;

/**
 * What a thread hands to the threads that it makes itself, where {@code inheritThreads} asks for it: what its scopes say at
 * that moment. A thread that comes from a factory is an executor's: it will work for others, and starts with nothing.
 *
 * <p>Where a thread is made the JDK asks for the value that it inherits; the new thread finds the value when it begins. A
 * value is an array: no thread that lives on holds on to our classes.
 */
final class InheritedScope {
    private static final long[] NOTHING = {};
    /** A factory is near the top of the stack on which a thread is made. */
    private static final int MOST_FRAMES = 64;

    private static final ThreadLocal<long[]> GIVEN = new InheritableThreadLocal<>() {
        @Override
        protected long[] childValue(long[] own) {
            try {
                return Native.isRunning() && !isMadeByFactory() ? Scope.wordsHere() : NOTHING;
            } catch (RuntimeException | Error failed) {
                // The thread must be made.
                return NOTHING;
            }
        }
    };

    private InheritedScope() {}

    /** The calling thread has its first scope: from here on it may have something to hand on. */
    static void prepare() {
        if (Native.inherit(InheritedScope.class)) {
            GIVEN.set(NOTHING);
        }
    }

    /** Called by the library on each new platform thread, before the thread's work. */
    private static void begin() {
        long[] given = GIVEN.get();
        if (given != null && given.length == ThreadScope.WORDS) {
            ByteBuffer words = ThreadScope.current();
            if (words != null) {
                ThreadScope.write(words, given);
            }
        }
    }

    private static boolean isMadeByFactory() {
        // A factory that is a lambda has a hidden frame.
        StackWalker walker = StackWalker.getInstance(Set.of(
                StackWalker.Option.RETAIN_CLASS_REFERENCE, StackWalker.Option.SHOW_HIDDEN_FRAMES));
        return walker.walk(frames -> frames.limit(MOST_FRAMES).anyMatch(InheritedScope::isFactory));
    }

    private static boolean isFactory(StackWalker.StackFrame frame) {
        Class<?> type = frame.getDeclaringClass();
        return frame.getMethodName().equals("newThread")
                && (ThreadFactory.class.isAssignableFrom(type)
                        || ForkJoinPool.ForkJoinWorkerThreadFactory.class.isAssignableFrom(type));
    }
}
