package io.spanprof.opentelemetry;

import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.ContextStorageProvider;
import io.spanprof.entry.JavaSupport;

/**
 * Links each sample to the span that OpenTelemetry has active, without code: the OpenTelemetry API finds this class by
 * itself when both JARs are on the class path. Compiled for Java 8: on an older Java than the profiler needs, tracing works
 * as without it.
 */
public final class SpanprofContextStorageProvider implements ContextStorageProvider {
    @Override
    public ContextStorage get() {
        ContextStorage own = ContextStorage.defaultStorage();
        if (!JavaSupport.isSupported()) {
            return own;
        }
        try {
            return (ContextStorage) Class.forName("io.spanprof.opentelemetry.LinkingStorage")
                    .getDeclaredMethod("around", ContextStorage.class).invoke(null, own);
        } catch (Throwable failure) {
            JavaSupport.decline("its samples cannot be linked to spans: " + failure);
            return own;
        }
    }
}
