package shop;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.TextMapGetter;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Collection;
import java.util.Collections;
import org.springframework.web.filter.OncePerRequestFilter;

/** As an instrumentation does: a span of this request continues the caller's trace. Independent of the profiler. */
class Tracing extends OncePerRequestFilter {
    private final Tracer tracer = SdkTracerProvider.builder()
            .addSpanProcessor(SimpleSpanProcessor.create(new Counting())).build().get("shop");

    @Override
    protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws ServletException, IOException {
        Context caller = W3CTraceContextPropagator.getInstance().extract(Context.root(), request, new Headers());
        Span span = tracer.spanBuilder(request.getMethod()).setParent(caller).setSpanKind(SpanKind.SERVER).startSpan();
        try (Scope active = span.makeCurrent()) {
            chain.doFilter(request, response);
        } finally {
            span.end();
        }
    }

    private static final class Headers implements TextMapGetter<HttpServletRequest> {
        @Override
        public Iterable<String> keys(HttpServletRequest request) {
            return Collections.list(request.getHeaderNames());
        }

        @Override
        public String get(HttpServletRequest request, String name) {
            return request == null ? null : request.getHeader(name);
        }
    }

    /** A production service sends its spans to a collector here. */
    private static final class Counting implements SpanExporter {
        private long spans;

        @Override
        public synchronized CompletableResultCode export(Collection<SpanData> ended) {
            spans += ended.size();
            return CompletableResultCode.ofSuccess();
        }

        @Override
        public CompletableResultCode flush() {
            return CompletableResultCode.ofSuccess();
        }

        @Override
        public synchronized CompletableResultCode shutdown() {
            System.out.println(spans + " spans ended");
            return CompletableResultCode.ofSuccess();
        }
    }
}
