package io.spanprof;

/** Starts the profiler with the settings of an agent. {@link SpanprofAgent} calls it by name, where Java can load it. */
final class AgentStart {
    private AgentStart() {}

    /** A setting that cannot work is one warning; the program runs on. */
    static void start(String settings) {
        try {
            SpanprofConfig.Builder config = SpanprofConfig.builder();
            if (settings != null) {
                // The library reads them, as it does where it is an agent by itself.
                config.set("agentOptions", settings);
            }
            Spanprof.start(config.build(), AgentStart.class);
        } catch (SpanprofException failure) {
            HostLog.warn("spanprof: this process is not profiled: " + failure.getMessage());
        }
    }
}
