package io.spanprof;

import java.util.concurrent.Callable;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/** What the scopes of a thread said when it handed work over, for the thread that does the work. Null work stays null. */
final class CarriedScope {
    private final long[] words;

    private CarriedScope(long[] words) {
        this.words = words;
    }

    static CarriedScope here() {
        return new CarriedScope(Scope.wordsHere());
    }

    Runnable over(Runnable work) {
        return work == null ? null : new Work(this, work);
    }

    <T> Callable<T> over(Callable<T> work) {
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

    <T> Supplier<T> overSupplier(Supplier<T> work) {
        return () -> {
            Scope scope = Scope.replace(words);
            try {
                return work.get();
            } finally {
                scope.close();
            }
        };
    }

    <T, R> Function<T, R> overFunction(Function<T, R> work) {
        return value -> overSupplier(() -> work.apply(value)).get();
    }

    <T, U, R> BiFunction<T, U, R> overBiFunction(BiFunction<T, U, R> work) {
        return (first, second) -> overSupplier(() -> work.apply(first, second)).get();
    }

    <T> Consumer<T> overConsumer(Consumer<T> work) {
        return value -> over(() -> work.accept(value)).run();
    }

    /** A task that knows which task it carries: executors give back those that they did not run. */
    record Work(CarriedScope carried, Runnable work) implements Runnable {
        @Override
        public void run() {
            Scope scope = Scope.replace(carried.words);
            try {
                work.run();
            } finally {
                scope.close();
            }
        }
    }
}
