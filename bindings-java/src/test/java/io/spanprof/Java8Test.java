package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Allocates;
import io.spanprof.programs.Plain;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.api.io.TempDir;

/** What Java 8 lacks. */
@EnabledIfSystemProperty(named = "programs.version", matches = "8")
class Java8Test {
    private static final String REASON = "spanprof: no heap profile: Java 8 does not report allocations; Java 11 and later do";

    @TempDir
    Path profiles;

    @Test
    void withoutAHeapProfileOneLineSaysSoAndTheOthersAreComplete() throws Exception {
        Path jar = LibraryTest.jar(Files.createDirectory(profiles.resolve("jar")), true);
        List<String> output = Programs.runPlain(List.of("-javaagent:" + jar + "=sampleRate=250,fileDirectory=" + profiles));
        assertEquals(List.of("INFO: " + REASON), output.stream().filter(line -> line.contains("heap")).toList());
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
        assertEquals(List.of(), ProfileFile.readAll(profiles, "allocs"));
    }

    @Test
    void aHeapProfileThatTheProgramRequestsIsOneWarning() throws Exception {
        List<String> output = Programs.run(Allocates.class, List.of(), profiles.toString(), "524288", "10", "auto", "1");
        assertEquals(List.of("WARNING: " + REASON), output.stream().filter(line -> line.contains("no heap profile")).toList());
    }
}
