package io.spanprof;

import java.lang.instrument.Instrumentation;

/**
 * Starts the profiler with the agent's settings. {@link SpanprofAgent} calls it by name, if this Java version can load it.
 */
final class AgentStart {
    private AgentStart() {}

    /** An invalid setting is logged as a warning; the program continues. */
    static void start(String settings, Instrumentation instrumentation) {
        try {
            SpanprofConfig.Builder config = SpanprofConfig.builder();
            if (settings != null) {
                // The library parses them, as for the native agent.
                config.set("agentOptions", settings);
            }
            if (Spanprof.start(config.build(), AgentStart.class) && Native.followsRequests()) {
                ProgramTransformer.install(instrumentation);
                TracerProviders.searchLoaded(instrumentation);
            }
        } catch (SpanprofException failure) {
            HostLog.warn("spanprof: this process is not profiled: " + failure.getMessage());
        }
    }
}
