package io.spanprof.opentelemetry;

import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.ContextStorageProvider;

/**
 * Links each sample to OpenTelemetry's active span, without code: the OpenTelemetry API finds this class if both JARs are
 * on the class path. If that fails, one line says why, and tracing works unchanged.
 */
public final class SpanprofContextStorageProvider implements ContextStorageProvider {
    @Override
    public ContextStorage get() {
        ContextStorage storage = ContextStorage.defaultStorage();
        try {
            return LinkingStorage.wrap(storage);
        } catch (Throwable failure) {
            System.err.println("spanprof: samples cannot be linked to spans: " + failure);
            return storage;
        }
    }
}
