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

/** Samples of a program with the OpenTelemetry SDK, which uses the profiler's API only to start it. */
class OpenTelemetryTest {
    private static final String SPANS = "io.spanprof.programs.Spans.";

    @TempDir
    Path profiles;

    @Test
    void samplesAreLinkedToTheActiveSpanAndHaveTheLabelsOfScopes() throws Exception {
        List<String> output = Programs.run(Spans.class, List.of(), profiles.toString());
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Map<String, String> ids = output.stream().map(line -> line.split(" "))
                .filter(words -> words.length == 2).collect(Collectors.toMap(words -> words[0], words -> words[1], (a, b) -> a));
        assertAllSamplesHave(samples, "outer", "span_id", ids.get("outer"));
        assertAllSamplesHave(samples, "inner", "span_id", ids.get("inner"));
        assertAllSamplesHave(samples, "outside", "span_id", null);
        assertAllSamplesHave(samples, "inner", "trace_id", ids.get("trace"));
        assertAllSamplesHave(samples, "inner", "step", "first");
        assertAllSamplesHave(samples, "outer", "step", null);
    }

    @Test
    void asAnExtensionOfTheAgentTheJarNeedsNoChangeOfTheProgram() throws Exception {
        Path jar = LibraryTest.jar(Files.createDirectory(profiles.resolve("jar")), true);
        Path own = Files.createDirectory(profiles.resolve("own"));
        String path = System.getProperty("java.class.path");
        String[] entries = path.split(File.pathSeparator);
        String agent = Arrays.stream(entries).filter(entry -> entry.contains("opentelemetry-javaagent")).findFirst().orElseThrow();
        // The class path has OpenTelemetry's API and the program's classes, but not the profiler.
        String classPath = Arrays.stream(entries)
                .filter(entry -> entry.contains("opentelemetry-api") || entry.contains("opentelemetry-context")
                        || entry.contains("opentelemetry-common") || entry.endsWith("test-classes"))
                .collect(Collectors.joining(File.pathSeparator));
        List<String> output = Programs.run(Untouched.class.getName(), classPath, List.of(
                "-javaagent:" + agent, "-Dotel.javaagent.extensions=" + jar, "-Dotel.traces.exporter=none",
                "-Dotel.metrics.exporter=none", "-Dotel.logs.exporter=none", "-Dspanprof.sample.rate=250",
                "-Dspanprof.file.directory=" + own));
        String span = output.stream().filter(line -> line.startsWith("span ")).findFirst().orElseThrow().substring(5);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(own);
        String program = Untouched.class.getName();
        assertTrue(ProfileFile.sum(samples, sample -> sample.has(program + ".within")) > 100_000_000, output::toString);
        for (ProfileFile.Sample sample : samples) {
            if (sample.has(program + ".within") || sample.has(program + ".outside")) {
                assertEquals(sample.has(program + ".within") ? span : null, sample.labels().get("span_id"), sample::toString);
            }
        }
    }

    /** Asserts that all samples of a method have this value, or no value. */
    private static void assertAllSamplesHave(List<ProfileFile.Sample> samples, String method, String key, String value) {
        List<ProfileFile.Sample> of = samples.stream().filter(sample -> sample.has(SPANS + method)).toList();
        assertTrue(of.stream().mapToLong(ProfileFile.Sample::count).sum() >= 20, () -> "few samples of " + method);
        for (ProfileFile.Sample sample : of) {
            assertEquals(value, sample.labels().get(key), () -> method + " " + sample);
        }
    }
}
