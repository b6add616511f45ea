package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Spans;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Samples of a program with the OpenTelemetry SDK, which names the profiler only to start it. */
class OpenTelemetryTest {
    private static final String SPANS = "io.spanprof.programs.Spans.";

    @TempDir
    Path profiles;

    @Test
    void samplesAreLinkedToTheSpanThatWasActiveBesideTheLabelsOfScopes() throws Exception {
        List<String> said = Programs.run(Spans.class, List.of(), profiles.toString());
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Map<String, String> ids = said.stream().map(line -> line.split(" "))
                .filter(words -> words.length == 2).collect(Collectors.toMap(words -> words[0], words -> words[1], (a, b) -> a));
        only(samples, "outer", "span_id", ids.get("outer"));
        only(samples, "inner", "span_id", ids.get("inner"));
        only(samples, "outside", "span_id", null);
        only(samples, "inner", "trace_id", ids.get("trace"));
        only(samples, "inner", "step", "first");
        only(samples, "outer", "step", null);
    }

    /** All samples of a method have this one value, or none. */
    private static void only(List<ProfileFile.Sample> samples, String method, String key, String value) {
        List<ProfileFile.Sample> of = samples.stream().filter(sample -> sample.has(SPANS + method)).toList();
        assertTrue(of.stream().mapToLong(ProfileFile.Sample::count).sum() >= 20, () -> "few samples of " + method);
        for (ProfileFile.Sample sample : of) {
            assertEquals(value, sample.labels().get(key), () -> method + " " + sample);
        }
    }
}
