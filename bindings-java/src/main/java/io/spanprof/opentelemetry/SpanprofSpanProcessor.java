package io.spanprof.opentelemetry;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SdkTracerProviderBuilder;
import io.opentelemetry.sdk.trace.SpanProcessor;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.spanprof.SpanLink;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Sets {@code pyroscope.profile.id} and {@code profile.type} on every local root span, and reports its duration and its
 * status. An SDK that is configured automatically has it; others add it by {@code
 * SdkTracerProvider.builder().addSpanProcessor(new SpanprofSpanProcessor())}.
 */
public final class SpanprofSpanProcessor implements SpanProcessor {
    private static final AttributeKey<String> PROFILE_ID = AttributeKey.stringKey("pyroscope.profile.id");
    private static final AttributeKey<List<String>> PROFILE_TYPE = AttributeKey.stringArrayKey("profile.type");
    private static final AttributeKey<String> ROUTE = AttributeKey.stringKey("http.route");
    private static final AttributeKey<String> METHOD = AttributeKey.stringKey("http.request.method");
    /** Of semantic conventions before 1.23. */
    private static final AttributeKey<String> OLD_METHOD = AttributeKey.stringKey("http.method");

    /** Whether the SDK's resource is adopted. */
    private volatile boolean hasResource;

    /** Adds the processor to a provider that will be built, unless the program has; called by name. */
    static void register(SdkTracerProviderBuilder builder) {
        adopt(value(builder, "resource"));
        if (!isIn(value(builder, "spanProcessors"))) {
            builder.addSpanProcessor(new SpanprofSpanProcessor());
        }
    }

    /** As {@link #register}, for a provider that was built before; called by name. */
    static void extend(SdkTracerProvider provider) throws ReflectiveOperationException {
        Object state = value(provider, "sharedState");
        adopt(value(state, "resource"));
        Field processors = field(state, "activeSpanProcessor");
        SpanProcessor existing = (SpanProcessor) processors.get(state);
        if (isIn(Collections.singletonList(existing)) || isIn(value(existing, "spanProcessorsAll"))) {
            return;
        }
        processors.set(state, SpanProcessor.composite(existing, new SpanprofSpanProcessor()));
    }

    /** Whether a list has a processor of this name: the program's may be of another loader. */
    private static boolean isIn(Object processors) {
        String name = SpanprofSpanProcessor.class.getName();
        return processors instanceof List
                && ((List<?>) processors).stream().anyMatch(processor -> processor.getClass().getName().equals(name));
    }

    private static Field field(Object object, String name) throws NoSuchFieldException {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    /** The value of a private field; null if this version of the SDK has no such field, or a module denies access. */
    private static Object value(Object object, String name) {
        try {
            return field(object, name).get(object);
        } catch (ReflectiveOperationException | RuntimeException unknown) {
            return null;
        }
    }

    /** The attributes of the SDK's resource become those of the profiles. */
    private static void adopt(Object resource) {
        if (!(resource instanceof Resource)) {
            return;
        }
        List<String> attributes = new ArrayList<>();
        ((Resource) resource).getAttributes().forEach((key, value) -> attributes.addAll(Arrays.asList(key.getKey(), String.valueOf(value))));
        SpanLink.adoptResource(attributes);
    }

    @Override
    public void onStart(Context parentContext, ReadWriteSpan span) {
        if (!isLocalRoot(span)) {
            SpanLink.beginSpan(span.getSpanContext().getSpanId(), span.getParentSpanContext().getSpanId(), isCall(span));
            return;
        }
        if (!hasResource) {
            hasResource = true;
            adopt(span.toSpanData().getResource());
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
        // A call without a parent is no request.
        if (isCall(span) || !isLocalRoot(span)) {
            SpanLink.endSpan(span.getSpanContext().getSpanId(), span.getName(), span.getLatencyNanos(), isCall(span));
            return;
        }
        SpanContext context = span.getSpanContext();
        SpanData data = span.toSpanData();
        String method = data.getAttributes().get(METHOD);
        SpanLink.endRootSpan(context.getTraceId(), context.getSpanId(), span.getLatencyNanos(), data.getName(),
                text(method == null ? data.getAttributes().get(OLD_METHOD) : method), text(data.getAttributes().get(ROUTE)),
                data.getStatus().getStatusCode() == StatusCode.ERROR);
    }

    @Override
    public boolean isEndRequired() {
        return true;
    }

    /** Whether the span is a call of another service, a database or a queue. */
    private static boolean isCall(ReadableSpan span) {
        return span.getKind() == SpanKind.CLIENT || span.getKind() == SpanKind.PRODUCER;
    }

    private static String text(String attribute) {
        return attribute == null ? "" : attribute;
    }

    private static boolean isLocalRoot(ReadableSpan span) {
        SpanContext parent = span.getParentSpanContext();
        return !parent.isValid() || parent.isRemote();
    }
}
