package io.spanprof.pyroscope;

import io.spanprof.SpanLink;
import java.util.Map;

/** Implements {@link ProfilerApi} with the profiler's API. */
public class ProfilerSdk implements ProfilerApi {
    private static final int TRACE_DIGITS = 32;

    @Override
    public void startProfiling() {
        PyroscopeAgent.start();
    }

    @Override
    public boolean isProfilingStarted() {
        return PyroscopeAgent.isStarted();
    }

    @Override
    public ProfilerScopedContext createScopedContext(Map<String, String> labels) {
        return new ScopedContext(new LabelsSet(labels));
    }

    @Override
    public void setTracingContext(long spanId, long spanName) {
        SpanLink.here().withSpan(spanId).restore();
    }

    @Override
    public long registerConstant(String constant) {
        return 0;
    }

    @Override
    public void setTraceId(String traceId) {
        if (traceId.length() != TRACE_DIGITS || !traceId.chars().allMatch(digit -> digit < 128 && Character.digit(digit, 16) >= 0)) {
            throw new NumberFormatException("a trace id is " + TRACE_DIGITS + " hex digits, got `" + traceId + "`");
        }
        SpanLink.here().withTrace(traceId).restore();
    }

    @Override
    public void clearTraceId() {
        SpanLink.here().withTrace(null).restore();
    }
}
