package io.spanprof.programs;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.spanprof.Capture;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import io.spanprof.opentelemetry.SpanprofSpanProcessor;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

/** SlowRequests of known duration under tail-based retention, and a captured one beside another thread. */
public final class SlowRequests {
    private static final long SLOW_NANOSECONDS = 100_000_000;
    private static volatile boolean isDone;
    private static double sum;

    private SlowRequests() {}

    static void captured() {
        burn(200_000_000);
    }

    static void beside() {
        while (!isDone) {
            burn(10_000_000);
        }
    }

    private static void burn(long nanoseconds) {
        long end = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + nanoseconds;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 5_000; i++) {
                sum += Math.sqrt(i + sum);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("requests").sampleRate(500).heap(false).fileDirectory(args[0])
                .retention("tail").tailDuration(Duration.ofNanos(SLOW_NANOSECONDS)).build());
        Tracer tracer = SdkTracerProvider.builder().addSpanProcessor(new SpanprofSpanProcessor()).build().get("requests");
        for (int number = 0; number < 100; number++) {
            Span span = tracer.spanBuilder("GET /cart").startSpan();
            try (Scope active = span.makeCurrent()) {
                burn(number % 10 == 0 ? SLOW_NANOSECONDS : 2_000_000);
            }
            span.end();
            ReadableSpan ended = (ReadableSpan) span;
            if (ended.getLatencyNanos() >= SLOW_NANOSECONDS) {
                System.out.println("slow " + span.getSpanContext().getSpanId());
            }
            System.out.println("attributes " + ended.toSpanData().getAttributes().asMap());
        }
        Thread other = new Thread(SlowRequests::beside);
        other.start();
        Capture<Integer> capture = Spanprof.capture(() -> {
            try (var labels = Spanprof.tag(Map.of("step", "first"))) {
                Thread bound = new Thread(Spanprof.wrap((Runnable) SlowRequests::captured));
                bound.start();
                bound.join();
            }
            return 5;
        });
        isDone = true;
        other.join();
        capture.save(Path.of(args[1]));
        System.out.println("sent " + capture.send(Duration.ofSeconds(30)));
        System.out.println("result " + capture.result());
        System.out.println("ended " + Spanprof.stats().get("tail.requests"));
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
