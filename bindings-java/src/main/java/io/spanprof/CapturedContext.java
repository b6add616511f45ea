package io.spanprof;

import java.io.Serializable;
import java.util.concurrent.Callable;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/** The context of a thread when it submitted work, restored on the thread that runs the work. Null work stays null. */
final class CapturedContext {
    private final long[] words;

    private CapturedContext(long[] words) {
        this.words = words;
    }

    static CapturedContext capture() {
        return new CapturedContext(Scope.currentWords());
    }

    Runnable wrap(Runnable work) {
        if (work == null) {
            return null;
        }
        return work instanceof Comparable<?> ? new ComparableWork(words, work) : new Work(words, work);
    }

    <T> Callable<T> wrap(Callable<T> work) {
        return work == null ? null : new Call<>(words, work);
    }

    /** The original of a task that {@code shutdownNow} returned. */
    static Runnable unwrapped(Runnable task) {
        return task instanceof Work ? ((Work) task).work : task;
    }

    <T> Supplier<T> wrapSupplier(Supplier<T> work) {
        return () -> {
            Scope scope = Scope.replace(words);
            try {
                return work.get();
            } finally {
                scope.end(true);
            }
        };
    }

    <T, R> Function<T, R> wrapFunction(Function<T, R> work) {
        return value -> wrapSupplier(() -> work.apply(value)).get();
    }

    <T, U, R> BiFunction<T, U, R> wrapBiFunction(BiFunction<T, U, R> work) {
        return (first, second) -> wrapSupplier(() -> work.apply(first, second)).get();
    }

    <T> Consumer<T> wrapConsumer(Consumer<T> work) {
        return value -> wrap(() -> work.accept(value)).run();
    }

    /**
     * A wrapped task. Queues, hooks and remote executors of the program see it: it is equal to another wrapper of an equal
     * task, prints as its task, and is serialized as its task.
     */
    private abstract static class Task<W> implements Serializable {
        private static final long serialVersionUID = 1L;

        final transient long[] words;
        final transient W work;

        Task(long[] words, W work) {
            this.words = words;
            this.work = work;
        }

        /** Called by the serialization of each subclass. */
        Object writeReplace() {
            return work;
        }

        static Object unwrapped(Object task) {
            return task instanceof Task ? ((Task<?>) task).work : task;
        }

        @Override
        public boolean equals(Object other) {
            return work.equals(unwrapped(other));
        }

        @Override
        public int hashCode() {
            return work.hashCode();
        }

        @Override
        public String toString() {
            return work.toString();
        }
    }

    private static class Work extends Task<Runnable> implements Runnable {
        private static final long serialVersionUID = 1L;

        Work(long[] words, Runnable work) {
            super(words, work);
        }

        @Override
        public void run() {
            Scope scope = Scope.replace(words);
            try {
                work.run();
            } finally {
                scope.end(true);
            }
        }
    }

    /** For a pool with a queue in the order of its tasks. */
    private static final class ComparableWork extends Work implements Comparable<Object> {
        private static final long serialVersionUID = 1L;

        ComparableWork(long[] words, Runnable work) {
            super(words, work);
        }

        @Override
        @SuppressWarnings("unchecked")
        public int compareTo(Object other) {
            return ((Comparable<Object>) work).compareTo(unwrapped(other));
        }
    }

    private static final class Call<T> extends Task<Callable<T>> implements Callable<T> {
        private static final long serialVersionUID = 1L;

        Call(long[] words, Callable<T> work) {
            super(words, work);
        }

        @Override
        public T call() throws Exception {
            Scope scope = Scope.replace(words);
            try {
                return work.call();
            } finally {
                scope.end(true);
            }
        }
    }
}
