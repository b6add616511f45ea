package io.spanprof;

import io.spanprof.entry.JavaSupport;
import java.lang.reflect.InvocationTargetException;

/**
 * {@code -javaagent:spanprof.jar=serviceName=checkout,sampleRate=99}: starts the profiler before the program. A failure to
 * start is logged as one warning; the program continues. Compiled for Java 8, so that older VMs can load this class and
 * report that they are not supported.
 */
public final class SpanprofAgent {
    private SpanprofAgent() {}

    /** Called by the VM before the program's main method. */
    public static void premain(String settings) {
        start(settings);
    }

    /** Called by the VM when the agent is loaded into a running program. */
    public static void agentmain(String settings) {
        start(settings);
    }

    /** An exception thrown from here would end the VM. */
    private static void start(String settings) {
        if (!JavaSupport.isSupported()) {
            return;
        }
        try {
            Class.forName("io.spanprof.AgentStart").getDeclaredMethod("start", String.class).invoke(null, settings);
        } catch (InvocationTargetException failure) {
            JavaSupport.decline(String.valueOf(failure.getCause()));
        } catch (Throwable failure) {
            JavaSupport.decline(String.valueOf(failure));
        }
    }
}
