package io.spanprof;

/**
 * {@code -javaagent:spanprof.jar=serviceName=checkout,sampleRate=99}: starts the profiler before the program. A setting
 * that cannot work is said in one warning; the program runs on.
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

    private static void start(String settings) {
        try {
            Spanprof.start(parse(settings));
        } catch (SpanprofException failure) {
            HostLog.warn("spanprof: this process is not profiled: " + failure.getMessage());
        }
    }

    /** {@code key=value} pairs with commas between them. */
    static SpanprofConfig parse(String settings) {
        SpanprofConfig.Builder builder = SpanprofConfig.builder();
        if (settings != null) {
            for (String setting : settings.split(",")) {
                int equals = setting.indexOf('=');
                if (equals > 0) {
                    builder.set(setting.substring(0, equals).trim(), setting.substring(equals + 1).trim());
                }
            }
        }
        return builder.build();
    }
}
