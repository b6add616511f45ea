package io.spanprof.opentelemetry;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.ContextStorageProvider;
import io.opentelemetry.context.Scope;
import io.spanprof.SpanLink;

/**
 * Links each sample to the span that OpenTelemetry has active, without code: the OpenTelemetry API finds this class by
 * itself when both JARs are on the class path.
 */
public final class SpanprofContextStorageProvider implements ContextStorageProvider {
    @Override
    public ContextStorage get() {
        return new Linking(ContextStorage.defaultStorage());
    }

    private record Linking(ContextStorage storage) implements ContextStorage {
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
                scope.close();
                if (thread == Thread.currentThread()) {
                    before.restore();
                }
            };
        }

        @Override
        public Context current() {
            return storage.current();
        }
    }
}
