/**
 * The profiler. Without {@code provides}: a module whose services are of absent modules cannot be resolved. {@link
 * io.spanprof.Spanprof#start} links the spans of OpenTelemetry instead.
 */
module io.spanprof {
    requires static io.opentelemetry.api;
    requires static io.opentelemetry.context;
    requires static io.opentelemetry.sdk.autoconfigure.spi;
    requires static io.opentelemetry.sdk.common;
    requires static io.opentelemetry.sdk.trace;
    requires static jakarta.servlet;
    requires static java.instrument;
    requires static javax.servlet.api;
    requires static jdk.httpserver;

    exports io.spanprof;
    exports io.spanprof.opentelemetry;
    exports io.spanprof.pyroscope;
    exports io.spanprof.servlet;
}
