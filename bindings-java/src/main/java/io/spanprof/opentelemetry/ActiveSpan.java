package io.spanprof.opentelemetry;

import io.opentelemetry.api.trace.Span;

/** The active span of OpenTelemetry. Cannot be loaded in a program without its API. */
public final class ActiveSpan {
    private ActiveSpan() {}

    /** Sets the attribute {@code profile.file}: the file of a capture that was saved while the span is active. */
    public static void setProfileFile(String path) {
        Span.current().setAttribute("profile.file", path);
    }
}
