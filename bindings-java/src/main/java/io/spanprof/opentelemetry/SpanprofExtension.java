package io.spanprof.opentelemetry;

import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizer;
import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizerProvider;
import io.spanprof.entry.JavaSupport;

/**
 * The JAR as an extension of OpenTelemetry's agent, {@code -Dotel.javaagent.extensions=spanprof.jar}: the agent's active span
 * links itself, and the profiler is started with what the environment says. In a program that configures its own SDK it
 * starts nothing. Compiled for Java 8: on an older Java than the profiler needs, the agent traces as without it.
 */
public final class SpanprofExtension implements AutoConfigurationCustomizerProvider {
    @Override
    public void customize(AutoConfigurationCustomizer customizer) {
        if (!JavaSupport.isSupported()) {
            return;
        }
        try {
            Class.forName("io.spanprof.opentelemetry.ExtensionStart").getDeclaredMethod("customize").invoke(null);
        } catch (Throwable failure) {
            JavaSupport.decline("OpenTelemetry's agent cannot start it: " + failure);
        }
    }
}
