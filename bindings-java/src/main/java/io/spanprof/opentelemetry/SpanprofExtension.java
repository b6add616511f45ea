package io.spanprof.opentelemetry;

import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizer;
import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizerProvider;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofException;

/**
 * The JAR as an extension of OpenTelemetry's agent, {@code -Dotel.javaagent.extensions=spanprof.jar}: the agent's active span
 * links itself, and the profiler is started with what the environment says. In a program that configures its own SDK it
 * starts nothing.
 */
public final class SpanprofExtension implements AutoConfigurationCustomizerProvider {
    @Override
    public void customize(AutoConfigurationCustomizer customizer) {
        if (!isInAgent()) {
            // On a class path the API finds the provider beside this class.
            return;
        }
        if (LinkingStorage.isFirst()) {
            ContextStorage.addWrapper(LinkingStorage::new);
        }
        try {
            Spanprof.start();
        } catch (SpanprofException failure) {
            System.getLogger("spanprof").log(System.Logger.Level.WARNING,
                    "spanprof: this process is not profiled: " + failure.getMessage());
        }
    }

    /** The agent keeps OpenTelemetry under names of its own, and gives them to its extensions. */
    private static boolean isInAgent() {
        return ContextStorage.class.getName().contains(".javaagent.");
    }
}
