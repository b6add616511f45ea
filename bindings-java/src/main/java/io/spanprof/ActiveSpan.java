package io.spanprof.opentelemetry;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.spanprof.SpanLink;
import java.util.List;

/** The active span of OpenTelemetry. Cannot be loaded in a program without its API. */
public final class ActiveSpan {
    /** The keys of the profiles that are on. */
    private static final AttributeKey<List<String>> PROFILE_TYPE = AttributeKey.stringArrayKey("profile.type");

    private ActiveSpan() {}

    /**
     * Sets the attributes {@code profile.file}, the file of a capture that was saved while the span is active, and {@code
     * profile.type}.
     */
    public static void setProfileFile(String path) {
        Span.current().setAttribute("profile.file", path);
        setProfileTypes(Span.current());
    }

    static void setProfileTypes(Span span) {
        List<String> types = SpanLink.profileTypes();
        if (!types.isEmpty()) {
            span.setAttribute(PROFILE_TYPE, types);
        }
    }
}
