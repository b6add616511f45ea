package io.spanprof;

import java.lang.instrument.Instrumentation;

/**
 * {@code -javaagent:spanprof.jar=serviceName=checkout,sampleRate=99}: starts the profiler before the program. A failure to
 * start is logged as one warning; the program continues.
 */
public final class SpanprofAgent {
    private SpanprofAgent() {}

    /** Called by the VM before the program's main method. */
    public static void premain(String settings, Instrumentation instrumentation) {
        start(settings, instrumentation);
    }

    /** Called by the VM when the agent is loaded into a running program. */
    public static void agentmain(String settings, Instrumentation instrumentation) {
        start(settings, instrumentation);
    }

    /** An exception thrown from here would end the VM. */
    private static void start(String settings, Instrumentation instrumentation) {
        try {
            SpanprofConfig.Builder config = SpanprofConfig.builder();
            if (settings != null) {
                // The library parses them, as for the native agent.
                config.set("agentOptions", settings);
            }
            if (Spanprof.start(config.build(), SpanprofAgent.class) && Native.followsRequests()) {
                ProgramTransformer.install(instrumentation);
                TracerProviders.searchLoaded(instrumentation);
            }
        } catch (SpanprofException failure) {
            HostLog.warn("spanprof: this process is not profiled: " + failure.getMessage());
        } catch (Throwable failure) {
            HostLog.warn("spanprof: this process is not profiled: " + failure);
        }
    }
}
