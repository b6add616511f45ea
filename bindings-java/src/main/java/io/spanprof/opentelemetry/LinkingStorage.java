package io.spanprof.opentelemetry;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.Scope;
import io.spanprof.SpanLink;

/** Wraps OpenTelemetry's context storage and passes each change of the active span to the profiler. */
final class LinkingStorage implements ContextStorage {
    private final ContextStorage storage;

    LinkingStorage(ContextStorage storage) {
        this.storage = storage;
    }

    /** The storage that {@link SpanprofContextStorageProvider} returns; called by name. A storage is wrapped once, by any loader. */
    static ContextStorage wrap(ContextStorage storage) {
        boolean isLinked = storage.getClass().getName().equals(LinkingStorage.class.getName());
        return isLinked ? storage : new LinkingStorage(storage);
    }

    /** Wraps the storage when OpenTelemetry creates it; called by name. */
    static void wrapLater() {
        ContextStorage.addWrapper(LinkingStorage::wrap);
    }

    @Override
    public Scope attach(Context context) {
        Scope scope = storage.attach(context);
        if (scope == Scope.noop()) {
            // The context was current already.
            return scope;
        }
        Span active = Span.fromContext(context);
        SpanContext span = active.getSpanContext();
        SpanLink.requireProcessor(active);
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
