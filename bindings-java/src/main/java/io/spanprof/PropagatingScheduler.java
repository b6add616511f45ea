package io.spanprof;

import java.util.concurrent.Callable;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/** As {@link PropagatingExecutor}, for delayed and periodic tasks. */
final class PropagatingScheduler extends PropagatingExecutor<ScheduledExecutorService> implements ScheduledExecutorService {
    PropagatingScheduler(ScheduledExecutorService executor) {
        super(executor);
    }

    @Override
    public ScheduledFuture<?> schedule(Runnable work, long delay, TimeUnit unit) {
        return executor.schedule(CapturedContext.capture().wrap(work), delay, unit);
    }

    @Override
    public <T> ScheduledFuture<T> schedule(Callable<T> work, long delay, TimeUnit unit) {
        return executor.schedule(CapturedContext.capture().wrap(work), delay, unit);
    }

    @Override
    public ScheduledFuture<?> scheduleAtFixedRate(Runnable work, long delay, long period, TimeUnit unit) {
        return executor.scheduleAtFixedRate(CapturedContext.capture().wrap(work), delay, period, unit);
    }

    @Override
    public ScheduledFuture<?> scheduleWithFixedDelay(Runnable work, long delay, long pause, TimeUnit unit) {
        return executor.scheduleWithFixedDelay(CapturedContext.capture().wrap(work), delay, pause, unit);
    }
}
