package io.spanprof.programs;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SpanProcessor;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.util.Map;

/** Nested spans and work outside of both. No code here passes spans to the profiler. */
public final class Spans {
    private static final long EACH_NANOSECONDS = 300_000_000;
    private static double sum;

    private Spans() {}

    /** A processor that records spans. */
    private static final class RecordingProcessor implements SpanProcessor {
        @Override
        public void onStart(Context parent, ReadWriteSpan span) {
            span.setAttribute("seen", true);
        }

        @Override
        public boolean isStartRequired() {
            return true;
        }

        @Override
        public void onEnd(ReadableSpan span) {
            span.toSpanData();
        }

        @Override
        public boolean isEndRequired() {
            return true;
        }
    }

    static void outer() {
        burn();
    }

    static void inner() {
        burn();
    }

    static void outside() {
        burn();
    }

    private static void burn() {
        long end = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + EACH_NANOSECONDS;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 20_000; i++) {
                sum += Math.sqrt(i + sum);
            }
        }
    }

    public static void main(String[] args) {
        Spanprof.start(SpanprofConfig.builder()
                .serviceName("spans").sampleRate(250).fileDirectory(args[0]).build());
        // Without a processor the SDK creates no spans.
        Tracer tracer = SdkTracerProvider.builder().addSpanProcessor(new RecordingProcessor()).build().get("spans");
        Span first = tracer.spanBuilder("outer").startSpan();
        try (Scope active = first.makeCurrent()) {
            outer();
            Span second = tracer.spanBuilder("inner").startSpan();
            try (Scope within = second.makeCurrent(); var labels = Spanprof.tag(Map.of("step", "first"))) {
                inner();
            }
            outer();
            System.out.println("inner " + second.getSpanContext().getSpanId());
        }
        outside();
        System.out.println("outer " + first.getSpanContext().getSpanId());
        System.out.println("trace " + first.getSpanContext().getTraceId());
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
