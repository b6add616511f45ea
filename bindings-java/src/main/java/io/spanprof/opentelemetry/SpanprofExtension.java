package io.spanprof.opentelemetry;

import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizer;
import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizerProvider;

/**
 * The JAR as an extension of OpenTelemetry's agent, {@code -Dotel.javaagent.extensions=spanprof.jar}: links samples to the
 * agent's active span, and starts the profiler with the settings of the environment. In a program that configures its own
 * SDK it does not start the profiler. If it cannot start, one line says why, and the agent works unchanged.
 */
public final class SpanprofExtension implements AutoConfigurationCustomizerProvider {
    @Override
    public void customize(AutoConfigurationCustomizer customizer) {
        try {
            ExtensionStart.customize(customizer);
        } catch (Throwable failure) {
            System.err.println("spanprof: this process is not profiled: OpenTelemetry's agent cannot start it: " + failure);
        }
    }
}
