package io.spanprof.opentelemetry;

import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.sdk.autoconfigure.spi.AutoConfigurationCustomizer;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofException;

/** The work of {@link SpanprofExtension}, if this Java version can load it; called by name. */
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
        try {
            Spanprof.start();
        } catch (SpanprofException failure) {
            System.getLogger("spanprof").log(System.Logger.Level.WARNING,
                    "spanprof: this process is not profiled: " + failure.getMessage());
        }
    }

    /** The agent relocates OpenTelemetry's classes, for its extensions too. */
    private static boolean isInAgent() {
        return ContextStorage.class.getName().contains(".javaagent.");
    }
}
