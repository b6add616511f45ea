package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Spans;
import io.spanprof.programs.Untouched;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
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

    @Test
    void asAnExtensionOfTheAgentTheJarNeedsNothingOfTheProgram() throws Exception {
        Path jar = LibraryTest.jar(Files.createDirectory(profiles.resolve("jar")), true);
        Path own = Files.createDirectory(profiles.resolve("own"));
        String path = System.getProperty("java.class.path");
        String[] places = path.split(File.pathSeparator);
        String agent = Arrays.stream(places).filter(place -> place.contains("opentelemetry-javaagent")).findFirst().orElseThrow();
        // The program has OpenTelemetry's API and its own classes, and nothing of ours.
        String classPath = Arrays.stream(places)
                .filter(place -> place.contains("opentelemetry-api") || place.contains("opentelemetry-context")
                        || place.contains("opentelemetry-common") || place.endsWith("test-classes"))
                .collect(Collectors.joining(File.pathSeparator));
        List<String> said = Programs.run(Untouched.class.getName(), classPath, List.of(
                "-javaagent:" + agent, "-Dotel.javaagent.extensions=" + jar, "-Dotel.traces.exporter=none",
                "-Dotel.metrics.exporter=none", "-Dotel.logs.exporter=none", "-Dspanprof.sample.rate=250",
                "-Dspanprof.file.directory=" + own));
        String span = said.stream().filter(line -> line.startsWith("span ")).findFirst().orElseThrow().substring(5);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(own);
        String program = Untouched.class.getName();
        assertTrue(ProfileFile.sum(samples, sample -> sample.has(program + ".within")) > 100_000_000, said::toString);
        for (ProfileFile.Sample sample : samples) {
            if (sample.has(program + ".within") || sample.has(program + ".outside")) {
                assertEquals(sample.has(program + ".within") ? span : null, sample.labels().get("span_id"), sample::toString);
            }
        }
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
