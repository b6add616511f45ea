package io.spanprof;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import java.util.List;

/** The active span of OpenTelemetry. Cannot be loaded in a program without its API. */
final class ActiveSpan {
    private static final AttributeKey<List<String>> PROFILE_TYPE = AttributeKey.stringArrayKey("profile.type");

    private ActiveSpan() {}

    /**
     * Sets the attributes {@code profile.file}, the file of a capture that was saved while the span is active, and {@code
     * profile.type}.
     */
    static void setProfileFile(String path) {
        Span span = Span.current();
        span.setAttribute("profile.file", path);
        List<String> types = SpanLink.profileTypes();
        if (!types.isEmpty()) {
            span.setAttribute(PROFILE_TYPE, types);
        }
    }
}
