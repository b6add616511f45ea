package io.spanprof;

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
        return work == null ? null : new Work(this, work);
    }

    <T> Callable<T> wrap(Callable<T> work) {
        if (work == null) {
            return null;
        }
        return () -> {
            Scope scope = Scope.replace(words);
            try {
                return work.call();
            } finally {
                scope.close();
            }
        };
    }

    <T> Supplier<T> wrapSupplier(Supplier<T> work) {
        return () -> {
            Scope scope = Scope.replace(words);
            try {
                return work.get();
            } finally {
                scope.close();
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

    /** A wrapped task and its original: {@code shutdownNow} returns the original tasks. */
    record Work(CapturedContext context, Runnable work) implements Runnable {
        @Override
        public void run() {
            Scope scope = Scope.replace(context.words);
            try {
                work.run();
            } finally {
                scope.close();
            }
        }
    }
}
