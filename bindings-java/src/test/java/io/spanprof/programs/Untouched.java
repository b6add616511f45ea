package io.spanprof.programs;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Scope;
import java.lang.management.ManagementFactory;

/** A program with spans of OpenTelemetry's API, without SDK and profiler: an agent adds both. */
public final class Untouched {
    private static double sum;

    private Untouched() {}

    static void within() {
        burn();
    }

    static void outside() {
        burn();
    }

    private static void burn() {
        long end = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + 400_000_000L;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 20_000; i++) {
                sum += Math.sqrt(i + sum);
            }
        }
    }

    public static void main(String[] args) {
        Tracer tracer = GlobalOpenTelemetry.getTracer("untouched");
        Span span = tracer.spanBuilder("within").startSpan();
        try (Scope active = span.makeCurrent()) {
            within();
        } finally {
            span.end();
        }
        outside();
        System.out.println("span " + span.getSpanContext().getSpanId());
    }
}
