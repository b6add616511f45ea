package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.spanprof.opentelemetry.SpanprofSpanProcessor;
import io.spanprof.programs.SlowRequests;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The profile of one piece of work, and tail-based retention, against a program whose durations are known. */
class CaptureTest {
    @TempDir
    Path profiles;

    @Test
    void slowRequestsKeepTheirSpanAndACaptureHasItsOwnSamplesOnly() throws Exception {
        Path saved = profiles.resolve("capture.folded");
        Path directory = Files.createDirectory(profiles.resolve("windows"));
        List<String> output = Programs.run(SlowRequests.class, List.of(), directory.toString(), saved.toString());
        Set<String> slow = output.stream().filter(line -> line.startsWith("slow ")).map(line -> line.substring(5))
                .collect(Collectors.toSet());
        assertTrue(slow.size() >= 10, output::toString);
        Set<String> kept = ProfileFile.readAll(directory).stream().map(sample -> sample.labels().get("span_id"))
                .filter(span -> span != null).collect(Collectors.toSet());
        assertEquals(slow, kept);
        for (ProfileFile.Sample sample : ProfileFile.readAll(directory)) {
            assertEquals(sample.labels().containsKey("span_id"), sample.labels().containsKey("end_timestamp_ns"));
        }
        List<String> attributes = output.stream().filter(line -> line.startsWith("attributes ")).toList();
        assertEquals(100, attributes.size());
        for (String line : attributes) {
            assertTrue(line.contains("pyroscope.profile.id=") && line.contains("profile.type=[cpu"), line);
        }
        assertTrue(output.contains("result 5") && output.contains("stopped 1"), output::toString);
        assertTrue(output.contains("sent true"), output::toString);
        try (Stream<Path> files = Files.list(directory)) {
            assertEquals(1, files.filter(file -> file.toString().matches(".*/capture_cpu-\\d+\\.pb\\.gz")).count());
        }
        List<String> stacks = Files.readAllLines(saved);
        assertTrue(stacks.stream().noneMatch(stack -> stack.contains("SlowRequests.beside")), stacks::toString);
        long nanoseconds = stacks.stream().filter(stack -> stack.contains("SlowRequests.captured"))
                .mapToLong(stack -> Long.parseLong(stack.substring(stack.lastIndexOf(' ') + 1))).sum();
        // The first sample may have begun before, and the last period is missing.
        assertTrue(nanoseconds > 100_000_000 && nanoseconds < 400_000_000, stacks::toString);
    }

    @Test
    void withoutAProfilerACaptureIsEmpty() throws Exception {
        Capture<Integer> capture = Spanprof.capture(() -> 7);
        assertEquals(7, capture.result());
        assertEquals("", capture.folded());
        assertFalse(capture.send());
    }

    @Test
    void theActiveSpanNamesTheFileOfASavedCapture() throws Exception {
        SdkTracerProvider provider = SdkTracerProvider.builder().addSpanProcessor(new SpanprofSpanProcessor()).build();
        Span span = provider.get("test").spanBuilder("request").startSpan();
        Path file = profiles.resolve("capture.folded");
        try (var active = span.makeCurrent()) {
            Spanprof.capture(() -> 7).save(file);
        }
        Spanprof.capture(() -> 8).save(profiles.resolve("other.folded"));
        span.end();
        assertEquals(file.toString(), ((ReadableSpan) span).getAttribute(AttributeKey.stringKey("profile.file")));
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
    }

    @Test
    void nestedLabelsKeepTheNumberOfTheCapture() {
        long capture = 9L << Integer.SIZE;
        assertEquals(capture | 5, LabelSets.merged(capture, 5));
        assertEquals(capture | 5, LabelSets.merged(5, capture));
        assertEquals(capture | 5, LabelSets.merged(capture | 5, 5));
        assertEquals(8L << Integer.SIZE | 5, LabelSets.merged(capture | 5, 8L << Integer.SIZE));
    }
}
