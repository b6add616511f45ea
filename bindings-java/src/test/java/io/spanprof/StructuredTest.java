package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Labels within structured concurrency, as Java 25 has it in preview: a program from its source, since no other Java reads it. */
class StructuredTest {
    private static final Map<String, String> GIVEN = Map.of("endpoint", "/cart", "tenant", "acme");
    private static final Path SOURCE = Path.of("src/test/preview/Structured.java");

    @TempDir
    Path profiles;

    @Test
    void subtasksSayWhatTheirScopesThreadSaidWhereTheyAreWrapped() throws Exception {
        plainSays(Map.of(), profiles.toString());
    }

    @Test
    void subtasksInheritWhatTheirScopesThreadSaidWhereThreadsInherit() throws Exception {
        plainSays(GIVEN, profiles.toString(), "inherited");
    }

    private void plainSays(Map<String, String> plain, String... words) throws Exception {
        assumeTrue(Runtime.version().feature() == 25, "the preview of Java 25");
        List<String> said = Programs.run(SOURCE.toString(), System.getProperty("java.class.path"),
                List.of("--enable-preview", "--source", "25"), words);
        assertEquals(1, Programs.number(said, "stopped"), said::toString);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        only(samples, "Structured.price", GIVEN);
        only(samples, "Structured.stock", GIVEN);
        only(samples, "Structured.plain", plain);
    }

    private static void only(List<ProfileFile.Sample> samples, String method, Map<String, String> given) {
        List<ProfileFile.Sample> of = samples.stream().filter(sample -> sample.has(method)).toList();
        assertTrue(of.stream().mapToLong(ProfileFile.Sample::nanoseconds).sum() > 0, () -> "no samples of " + method);
        for (ProfileFile.Sample sample : of) {
            for (String key : List.of("endpoint", "tenant")) {
                assertEquals(given.get(key), sample.labels().get(key), () -> method + " " + sample);
            }
        }
    }
}
