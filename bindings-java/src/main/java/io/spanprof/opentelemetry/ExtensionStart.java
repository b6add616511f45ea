package io.spanprof.opentelemetry;

import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizer;
import io.spanprof.Spanprof;

/** The work of {@link SpanprofExtension}. */
final class ExtensionStart {
    private ExtensionStart() {}

    static void customize(AutoConfigurationCustomizer customizer) {
        if (System.getProperty("io.spanprof.transforms") != null) {
            // With -javaagent, the builder of the provider announces itself.
            return;
        }
        customizer.addTracerProviderCustomizer((builder, properties) -> {
            SpanprofSpanProcessor.register(builder);
            return builder;
        });
        if (!isInAgent()) {
            // On the class path, the OpenTelemetry API finds the provider itself.
            return;
        }
        LinkingStorage.wrapLater();
        Spanprof.start();
    }

    /** The agent relocates OpenTelemetry's classes, for its extensions too. */
    private static boolean isInAgent() {
        return ContextStorage.class.getName().contains(".javaagent.");
    }
}
