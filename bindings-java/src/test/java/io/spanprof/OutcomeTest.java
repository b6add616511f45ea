package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Short;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Every run, however short, reports its outcome before the VM is gone. */
class OutcomeTest {
    private static final String DEAD = "-Dspanprof.endpoint=http://127.0.0.1:1";

    private static List<String> outcomes(List<String> said) {
        return said.stream().filter(line -> line.contains("spanprof: stopped after")).toList();
    }

    @Test
    void aShortProgramWithoutAReceiverWarnsAtItsEnd() throws Exception {
        for (String end : List.of("returns", "exits", "stops", "logs")) {
            List<String> said = Programs.run(Short.class, List.of(DEAD), end);
            assertEquals(1, outcomes(said).size(), said::toString);
            String line = outcomes(said).get(0);
            assertTrue(line.startsWith("WARN"), line);
            assertTrue(line.contains("nothing delivered to http://127.0.0.1:1") && line.contains("cannot connect"), line);
        }
    }

    @Test
    void aLoggerOfTheProgramIsGivenTheOutcome() throws Exception {
        List<String> said = Programs.run(Short.class, List.of(DEAD), "chooses");
        assertEquals(1, outcomes(said).size(), said::toString);
        assertTrue(outcomes(said).get(0).startsWith("chosen WARNING"), said::toString);
    }

    @Test
    void outputIsOneFileOfTheWholeRunWithoutAReceiver(@TempDir Path directory) throws Exception {
        Path page = directory.resolve("flame.html");
        List<String> said = Programs.run(Short.class, List.of("-Dspanprof.output=" + page), "exits");
        assertTrue(outcomes(said).stream().allMatch(line -> line.endsWith(page + " written")), said::toString);
        assertTrue(Files.readString(page).contains("Short.burn"), said::toString);
    }
}
