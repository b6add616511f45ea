package io.spanprof.opentelemetry;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.Scope;
import io.spanprof.SpanLink;
import java.util.concurrent.atomic.AtomicBoolean;

/** OpenTelemetry's own storage of what is current, which tells the profiler of each change. */
record LinkingStorage(ContextStorage storage) implements ContextStorage {
    private static final AtomicBoolean IS_MADE = new AtomicBoolean();

    /** True once: there are two ways in, and one is enough. */
    static boolean isFirst() {
        return IS_MADE.compareAndSet(false, true);
    }

    /** The storage that {@link SpanprofContextStorageProvider} returns; called by name. */
    static ContextStorage around(ContextStorage own) {
        return isFirst() ? new LinkingStorage(own) : own;
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
}
