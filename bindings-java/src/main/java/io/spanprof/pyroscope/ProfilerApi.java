package io.spanprof.pyroscope;

import java.util.Map;

/** What bridges to Pyroscope's agent call; {@link ProfilerApiHolder} has one. */
public interface ProfilerApi {
    /** Starts with what the environment, the properties and the files say. */
    void startProfiling();

    boolean isProfilingStarted();

    /** Labels the calling thread until the context is closed. */
    ProfilerScopedContext createScopedContext(Map<String, String> labels);

    /**
     * The span that is active on the calling thread from here on, 0 for none. Its name is no label here: the span itself is
     * linked to each sample.
     */
    void setTracingContext(long spanId, long spanName);

    /** Accepted for compatibility: names of spans need no number here. */
    long registerConstant(String constant);

    /**
     * The trace of the calling thread's span from here on.
     *
     * @throws NumberFormatException when it is not 32 digits of hex
     */
    default void setTraceId(String traceId) {}

    /** The calling thread's span is of no trace any more. */
    default void clearTraceId() {}
}
