package io.spanprof.opentelemetry;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.Scope;
import io.spanprof.SpanLink;
import java.util.concurrent.atomic.AtomicBoolean;

/** Wraps OpenTelemetry's context storage and passes each change of the active span to the profiler. */
record LinkingStorage(ContextStorage storage) implements ContextStorage {
    private static final AtomicBoolean IS_INSTALLED = new AtomicBoolean();

    /** True for the first caller only: the provider and the extension must not both wrap the storage. */
    static boolean isFirst() {
        return IS_INSTALLED.compareAndSet(false, true);
    }

    /** The storage that {@link SpanprofContextStorageProvider} returns; called by name. */
    static ContextStorage wrap(ContextStorage storage) {
        return isFirst() ? new LinkingStorage(storage) : storage;
    }

    /** Wraps the storage when OpenTelemetry creates it; called by name. */
    static void wrapLater() {
        if (isFirst()) {
            ContextStorage.addWrapper(LinkingStorage::new);
        }
    }

    @Override
    public Scope attach(Context context) {
        Scope scope = storage.attach(context);
        if (scope == Scope.noop()) {
            // The context was current already.
            return scope;
        }
        SpanContext span = Span.fromContext(context).getSpanContext();
        SpanLink before =
                span.isValid() ? SpanLink.activate(span.getTraceId(), span.getSpanId()) : SpanLink.activate(null, null);
        Thread thread = Thread.currentThread();
        return () -> {
            try {
                scope.close();
            } finally {
                if (thread == Thread.currentThread()) {
                    before.restore();
                }
            }
        };
    }

    @Override
    public Context current() {
        return storage.current();
    }

    @Override
    public Context root() {
        return storage.root();
    }
}
