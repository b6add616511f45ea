package io.spanprof;

import io.spanprof.entry.JavaSupport;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.InvocationTargetException;

/**
 * {@code -javaagent:spanprof.jar=serviceName=checkout,sampleRate=99}: starts the profiler before the program. A failure to
 * start is logged as one warning; the program continues. Compiled for Java 8, so that older VMs can load this class and
 * report that they are not supported.
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
        if (!JavaSupport.isSupported()) {
            return;
        }
        try {
            Class.forName("io.spanprof.AgentStart").getDeclaredMethod("start", String.class, Instrumentation.class)
                    .invoke(null, settings, instrumentation);
        } catch (InvocationTargetException failure) {
            JavaSupport.decline(String.valueOf(failure.getCause()));
        } catch (Throwable failure) {
            JavaSupport.decline(String.valueOf(failure));
        }
    }
}
