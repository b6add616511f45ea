package io.spanprof.opentelemetry;

import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.ContextStorageProvider;
import io.spanprof.entry.JavaSupport;

/**
 * Links each sample to OpenTelemetry's active span, without code: the OpenTelemetry API finds this class if both JARs are
 * on the class path. Compiled for Java 8: on a Java version that the profiler does not support, tracing works unchanged.
 */
public final class SpanprofContextStorageProvider implements ContextStorageProvider {
    @Override
    public ContextStorage get() {
        ContextStorage storage = ContextStorage.defaultStorage();
        if (!JavaSupport.isSupported()) {
            return storage;
        }
        try {
            return (ContextStorage) Class.forName("io.spanprof.opentelemetry.LinkingStorage")
                    .getDeclaredMethod("wrap", ContextStorage.class).invoke(null, storage);
        } catch (Throwable failure) {
            JavaSupport.decline("its samples cannot be linked to spans: " + failure);
            return storage;
        }
    }
}
