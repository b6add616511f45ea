package io.spanprof.opentelemetry;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SpanProcessor;
import io.spanprof.SpanLink;
import java.util.List;

/**
 * Sets {@code pyroscope.profile.id} and {@code profile.type} on every local root span, and reports its duration and its
 * status. An SDK that is configured automatically has it; others add it by {@code
 * SdkTracerProvider.builder().addSpanProcessor(new SpanprofSpanProcessor())}.
 */
public final class SpanprofSpanProcessor implements SpanProcessor {
    private static final AttributeKey<String> PROFILE_ID = AttributeKey.stringKey("pyroscope.profile.id");
    private static final AttributeKey<List<String>> PROFILE_TYPE = AttributeKey.stringArrayKey("profile.type");

    @Override
    public void onStart(Context parentContext, ReadWriteSpan span) {
        if (!isLocalRoot(span)) {
            return;
        }
        SpanContext context = span.getSpanContext();
        SpanLink.beginRootSpan(context.getTraceId(), context.getSpanId());
        span.setAttribute(PROFILE_ID, context.getSpanId());
        List<String> types = SpanLink.profileTypes();
        if (!types.isEmpty()) {
            span.setAttribute(PROFILE_TYPE, types);
        }
    }

    @Override
    public boolean isStartRequired() {
        return true;
    }

    @Override
    public void onEnd(ReadableSpan span) {
        if (!isLocalRoot(span)) {
            return;
        }
        SpanContext context = span.getSpanContext();
        boolean isError = span.toSpanData().getStatus().getStatusCode() == StatusCode.ERROR;
        SpanLink.endRootSpan(context.getTraceId(), context.getSpanId(), span.getLatencyNanos(), span.getName(), isError);
    }

    @Override
    public boolean isEndRequired() {
        return true;
    }

    private static boolean isLocalRoot(ReadableSpan span) {
        SpanContext parent = span.getParentSpanContext();
        return !parent.isValid() || parent.isRemote();
    }
}
