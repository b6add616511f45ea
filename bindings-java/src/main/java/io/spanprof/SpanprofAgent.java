package io.spanprof;

import io.spanprof.entry.JavaSupport;
import java.lang.reflect.InvocationTargetException;

/**
 * {@code -javaagent:spanprof.jar=serviceName=checkout,sampleRate=99}: starts the profiler before the program. What keeps it
 * from starting is one warning; the program runs on. Compiled for Java 8: an older VM than the profiler needs must be able
 * to load this class.
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

    /** Whatever leaves this method ends the VM. */
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
