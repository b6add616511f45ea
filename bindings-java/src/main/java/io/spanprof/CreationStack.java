package io.spanprof;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadFactory;

/** The callers of a method that creates a thread. A security policy may deny the constructor. */
final class CreationStack {
    /** Upper bound of the frames searched for a factory. */
    private static final int MAX_FRAMES = 64;
    /** Executors that create one thread per task; by name, since older Java versions lack them. */
    private static final Set<String> THREAD_PER_TASK = new HashSet<>(Arrays.asList("java.util.concurrent.ThreadPerTaskExecutor",
            "java.util.concurrent.StructuredTaskScope", "java.util.concurrent.StructuredTaskScopeImpl"));
    private static final String NEW_THREAD = "newThread";

    /** Null in Java 8. A lambda factory has a hidden frame. */
    private final StackWalker walker = LaterApi.EXISTS ? walker() : null;
    private final ClassContext classContext = LaterApi.EXISTS ? null : new ClassContext();

    /** Whether a factory creates the thread, and its caller does not create one thread per task. */
    boolean isPooled() {
        return walker == null ? isPooledInJava8() : walker.walk(frames -> isPooled(frames.limit(MAX_FRAMES).iterator()));
    }

    private static StackWalker walker() {
        return StackWalker.getInstance(
                Set.of(StackWalker.Option.RETAIN_CLASS_REFERENCE, StackWalker.Option.SHOW_HIDDEN_FRAMES));
    }

    private static boolean isPooled(Iterator<StackWalker.StackFrame> frames) {
        boolean isPooled = false;
        boolean wasFactory = false;
        while (frames.hasNext()) {
            StackWalker.StackFrame frame = frames.next();
            if (frame.getMethodName().equals(NEW_THREAD) && isFactory(frame.getDeclaringClass())) {
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

    private static boolean isFactory(Class<?> type) {
        return ThreadFactory.class.isAssignableFrom(type)
                || ForkJoinPool.ForkJoinWorkerThreadFactory.class.isAssignableFrom(type);
    }

    /** Classes and methods are in two lists; that of the methods has no lambdas. No executor creates one thread per task. */
    private boolean isPooledInJava8() {
        Set<String> creators = new HashSet<>();
        Arrays.stream(new Throwable().getStackTrace()).limit(MAX_FRAMES).filter(frame -> frame.getMethodName().equals(NEW_THREAD))
                .forEach(frame -> creators.add(frame.getClassName()));
        return Arrays.stream(classContext.classes()).limit(MAX_FRAMES)
                .anyMatch(type -> isFactory(type) && (type.isSynthetic() || creators.contains(type.getName())));
    }

    @SuppressWarnings("removal")
    private static final class ClassContext extends SecurityManager {
        Class<?>[] classes() {
            return getClassContext();
        }
    }
}
