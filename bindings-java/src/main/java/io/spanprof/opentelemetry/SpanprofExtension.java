package io.spanprof.opentelemetry;

import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizer;
import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizerProvider;
import io.spanprof.entry.JavaSupport;

/**
 * The JAR as an extension of OpenTelemetry's agent, {@code -Dotel.javaagent.extensions=spanprof.jar}: links samples to the
 * agent's active span, and starts the profiler with the settings of the environment. In a program that configures its own
 * SDK it does not start the profiler. Compiled for Java 8: on a Java version that the profiler does not support, the agent
 * works unchanged.
 */
public final class SpanprofExtension implements AutoConfigurationCustomizerProvider {
    @Override
    public void customize(AutoConfigurationCustomizer customizer) {
        if (!JavaSupport.isSupported()) {
            return;
        }
        try {
            Class.forName("io.spanprof.opentelemetry.ExtensionStart")
                    .getDeclaredMethod("customize", AutoConfigurationCustomizer.class).invoke(null, customizer);
        } catch (Throwable failure) {
            JavaSupport.decline("OpenTelemetry's agent cannot start it: " + failure);
        }
    }
}
