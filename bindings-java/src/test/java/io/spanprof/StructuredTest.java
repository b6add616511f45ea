package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Labels in structured concurrency, a preview feature of Java 25: the program runs from source, since no other version
 * compiles it.
 */
class StructuredTest {
    private static final Map<String, String> LABELS = Map.of("endpoint", "/cart", "tenant", "acme");
    private static final Path SOURCE = Path.of("src/test/preview/Structured.java");

    @TempDir
    Path profiles;

    @Test
    void wrappedSubtasksHaveTheLabelsOfTheThreadOfTheirScope() throws Exception {
        assertLabelsOfUnwrappedSubtask(Map.of(), profiles.toString());
    }

    @Test
    void subtasksInheritTheLabelsOfTheThreadOfTheirScope() throws Exception {
        assertLabelsOfUnwrappedSubtask(LABELS, profiles.toString(), "inherited");
    }

    private void assertLabelsOfUnwrappedSubtask(Map<String, String> plain, String... args) throws Exception {
        assumeTrue(Runtime.version().feature() == 25, "the preview of Java 25");
        List<String> output = Programs.run(SOURCE.toString(), System.getProperty("java.class.path"),
                List.of("--enable-preview", "--source", "25"), args);
        assertEquals(1, Programs.number(output, "stopped"), output::toString);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        assertAllSamplesHave(samples, "Structured.price", LABELS);
        assertAllSamplesHave(samples, "Structured.stock", LABELS);
        assertAllSamplesHave(samples, "Structured.plain", plain);
    }

    private static void assertAllSamplesHave(List<ProfileFile.Sample> samples, String method, Map<String, String> expected) {
        List<ProfileFile.Sample> of = samples.stream().filter(sample -> sample.has(method)).toList();
        assertTrue(of.stream().mapToLong(ProfileFile.Sample::nanoseconds).sum() > 0, () -> "no samples of " + method);
        for (ProfileFile.Sample sample : of) {
            for (String key : List.of("endpoint", "tenant")) {
                assertEquals(expected.get(key), sample.labels().get(key), () -> method + " " + sample);
            }
        }
    }
}
