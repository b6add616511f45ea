package io.spanprof;

import java.nio.LongBuffer;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadFactory;

/**
 * What a thread hands to the threads that it makes itself, platform or virtual, where {@code inheritThreads} asks for it:
 * what its scopes say at that moment. A thread that comes from a factory is an executor's: it will work for others, and
 * starts with nothing, unless the executor makes one for each task.
 *
 * <p>Where a thread is made the JDK asks for the value that it inherits; the new thread finds the value when it begins. A
 * value is an array: no thread that lives on holds on to our classes.
 */
final class InheritedScope {
    private static final long[] NOTHING = {};
    /** A factory is near the top of the stack on which a thread is made. */
    private static final int MOST_FRAMES = 64;
    /** They make a thread for each task, which works for nobody else; by name, since not every Java has them. */
    private static final Set<String> THREAD_PER_TASK = Set.of("java.util.concurrent.ThreadPerTaskExecutor",
            "java.util.concurrent.StructuredTaskScope", "java.util.concurrent.StructuredTaskScopeImpl");

    private static final ThreadLocal<long[]> GIVEN = new InheritableThreadLocal<>() {
        @Override
        protected long[] childValue(long[] own) {
            try {
                LongBuffer said = ThreadScope.existing();
                boolean saysSomething = said != null && ThreadScope.isOpen(said);
                boolean isGiven = saysSomething && Native.inherit(InheritedScope.class)
                        && !Makers.STACK.walk(frames -> isForOthers(frames.limit(MOST_FRAMES).iterator()));
                return isGiven ? ThreadScope.words(said) : NOTHING;
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

    /** Called by the library on each new thread, before the thread's work. */
    private static void begin() {
        long[] given = GIVEN.get();
        if (given == null) {
            // To ask has left an entry behind, which every thread made by this one would be asked to inherit.
            GIVEN.remove();
        } else if (given.length == ThreadScope.WORDS) {
            LongBuffer words = ThreadScope.current();
            if (words != null) {
                ThreadScope.write(words, given);
            }
        }
    }

    /** Whether a factory makes the thread, and whoever called the outermost factory keeps it for more than one task. */
    private static boolean isForOthers(Iterator<StackWalker.StackFrame> frames) {
        boolean isForOthers = false;
        boolean wasFactory = false;
        while (frames.hasNext()) {
            StackWalker.StackFrame frame = frames.next();
            if (isFactory(frame)) {
                isForOthers = true;
                wasFactory = true;
            } else if (wasFactory) {
                if (THREAD_PER_TASK.contains(frame.getClassName())) {
                    return false;
                }
                wasFactory = false;
            }
        }
        return isForOthers;
    }

    private static boolean isFactory(StackWalker.StackFrame frame) {
        Class<?> type = frame.getDeclaringClass();
        return frame.getMethodName().equals("newThread")
                && (ThreadFactory.class.isAssignableFrom(type)
                        || ForkJoinPool.ForkJoinWorkerThreadFactory.class.isAssignableFrom(type));
    }

    /** Made where threads inherit only: not every program may look at its stacks. */
    private static final class Makers {
        /** A factory that is a lambda has a hidden frame. */
        static final StackWalker STACK = StackWalker.getInstance(
                Set.of(StackWalker.Option.RETAIN_CLASS_REFERENCE, StackWalker.Option.SHOW_HIDDEN_FRAMES));

        private Makers() {}
    }
}
