package io.spanprof.opentelemetry;

import io.opentelemetry.context.ContextStorage;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofException;

/** What {@link SpanprofExtension} does where Java can load it; called by name. */
final class ExtensionStart {
    private ExtensionStart() {}

    static void customize() {
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
