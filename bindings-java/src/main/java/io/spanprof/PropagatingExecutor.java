package io.spanprof;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

/** An executor that runs each task with the context of its submitter; everything else is delegated. */
class PropagatingExecutor<E extends ExecutorService> implements ExecutorService {
    final E executor;

    PropagatingExecutor(E executor) {
        this.executor = executor;
    }

    @Override
    public void execute(Runnable work) {
        executor.execute(CapturedContext.capture().wrap(work));
    }

    @Override
    public <T> Future<T> submit(Callable<T> work) {
        return executor.submit(CapturedContext.capture().wrap(work));
    }

    @Override
    public <T> Future<T> submit(Runnable work, T result) {
        return executor.submit(CapturedContext.capture().wrap(work), result);
    }

    @Override
    public Future<?> submit(Runnable work) {
        return executor.submit(CapturedContext.capture().wrap(work));
    }

    @Override
    public <T> List<Future<T>> invokeAll(Collection<? extends Callable<T>> work) throws InterruptedException {
        return executor.invokeAll(all(work));
    }

    @Override
    public <T> List<Future<T>> invokeAll(Collection<? extends Callable<T>> work, long timeout, TimeUnit unit)
            throws InterruptedException {
        return executor.invokeAll(all(work), timeout, unit);
    }

    @Override
    public <T> T invokeAny(Collection<? extends Callable<T>> work) throws InterruptedException, ExecutionException {
        return executor.invokeAny(all(work));
    }

    @Override
    public <T> T invokeAny(Collection<? extends Callable<T>> work, long timeout, TimeUnit unit)
            throws InterruptedException, ExecutionException, TimeoutException {
        return executor.invokeAny(all(work), timeout, unit);
    }

    private static <T> List<Callable<T>> all(Collection<? extends Callable<T>> work) {
        CapturedContext context = CapturedContext.capture();
        return work.stream().map(one -> context.<T>wrap(one)).collect(Collectors.toList());
    }

    @Override
    public void shutdown() {
        executor.shutdown();
    }

    @Override
    public List<Runnable> shutdownNow() {
        return executor.shutdownNow().stream().map(CapturedContext::unwrapped).collect(Collectors.toList());
    }

    @Override
    public boolean isShutdown() {
        return executor.isShutdown();
    }

    @Override
    public boolean isTerminated() {
        return executor.isTerminated();
    }

    @Override
    public boolean awaitTermination(long timeout, TimeUnit unit) throws InterruptedException {
        return executor.awaitTermination(timeout, unit);
    }

    /** Executors are closeable from Java 19 on. */
    public void close() {
        try {
            ((AutoCloseable) executor).close();
        } catch (RuntimeException failure) {
            throw failure;
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    @Override
    public String toString() {
        return executor.toString();
    }
}
