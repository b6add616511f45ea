package io.spanprof.pyroscope;

import java.util.Map;

/** The interface that bridges to Pyroscope's agent call; {@link ProfilerApiHolder} has an instance. */
public interface ProfilerApi {
    /** Starts with the settings of the environment, the properties and the files. */
    void startProfiling();

    boolean isProfilingStarted();

    /** Labels the calling thread until the context is closed. */
    ProfilerScopedContext createScopedContext(Map<String, String> labels);

    /**
     * Sets the active span of the calling thread, 0 for none. The span name is no label here: each sample is linked to the
     * span.
     */
    void setTracingContext(long spanId, long spanName);

    /** Accepted for compatibility: span names need no number here. */
    long registerConstant(String constant);

    /**
     * Sets the trace id of the calling thread's span.
     *
     * @throws NumberFormatException when it is not 32 digits of hex
     */
    default void setTraceId(String traceId) {}

    /** Clears the trace id of the calling thread's span. */
    default void clearTraceId() {}
}
