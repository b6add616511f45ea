package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Short;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Every run, however short, logs its outcome before the VM ends. */
class OutcomeTest {
    private static final String DEAD = "-Dspanprof.endpoint=http://127.0.0.1:1";

    private static List<String> outcomes(List<String> output) {
        return output.stream().filter(line -> line.contains("spanprof: stopped after")).toList();
    }

    @Test
    void aShortProgramWithoutAReceiverWarnsAtItsEnd() throws Exception {
        for (String end : List.of("returns", "exits", "stops", "logs")) {
            List<String> output = Programs.run(Short.class, List.of(DEAD, "-Xlog:class+load"), end);
            boolean usesLogging = output.stream().anyMatch(line -> line.contains(" java.util.logging.LogManager "));
            // From Java 21 on, `exit` logs.
            boolean mayUse = end.equals("logs") || end.equals("exits");
            assertTrue(mayUse || !usesLogging, "classes whose first use fails stay unusable");
            assertEquals(1, outcomes(output).size(), output::toString);
            String line = outcomes(output).get(0);
            assertTrue(line.startsWith("WARN"), line);
            assertTrue(line.contains("nothing delivered to http://127.0.0.1:1") && line.contains("cannot connect"), line);
        }
    }

    @ParameterizedTest
    @CsvSource({"exitsInAScope, 8", "exitsWhileStopping, 9", "exitsWhileFlushing, 10", "halts, 11", "throws, 1", "terminated, 143"})
    void aProgramEndsWithItsOwnStatus(String way, int status) throws Exception {
        Process process = Programs.start(Short.class, List.of(DEAD), way);
        if (way.equals("terminated")) {
            Thread.sleep(500);
            process.destroy();
        }
        assertTrue(process.waitFor(60, TimeUnit.SECONDS), way);
        assertEquals(status, process.exitValue());
    }

    @Test
    void theProgramsLoggerReceivesTheOutcome() throws Exception {
        List<String> output = Programs.run(Short.class, List.of(DEAD), "chooses");
        assertEquals(1, outcomes(output).size(), output::toString);
        assertTrue(outcomes(output).get(0).startsWith("chosen WARNING"), output::toString);
    }

    /** The VM waits for its shutdown hooks. */
    @Test
    void aProgramEndsWhoseLoggerBlocks() throws Exception {
        List<String> output = Programs.run(Short.class, List.of(DEAD), "blocks");
        assertEquals(List.of(), outcomes(output));
    }

    @Test
    void informationIsPrintedWithoutTheLoggingOfTheJdkUnlessTheProgramUsesIt(@TempDir Path directory) throws Exception {
        String file = "-Dspanprof.output=" + directory.resolve("flame.html");
        List<String> output = Programs.run(Short.class, List.of(file, "-Xlog:class+load"), "stops");
        assertTrue(outcomes(output).get(0).startsWith("INFO: spanprof: stopped after"), output::toString);
        assertTrue(output.stream().noneMatch(line -> line.contains(" java.util.logging.LogManager ")), output::toString);
        Path settings = directory.resolve("logging.properties");
        Files.writeString(settings, "handlers=java.util.logging.ConsoleHandler\njava.util.logging.SimpleFormatter.format=own %5$s%n\n");
        output = Programs.run(Short.class, List.of(file, "-Djava.util.logging.config.file=" + settings, "-Xlog:class+load"), "stops");
        assertTrue(outcomes(output).get(0).startsWith("own spanprof: stopped after"), output::toString);
        assertTrue(output.stream().anyMatch(line -> line.contains(" java.util.logging.LogManager ")), output::toString);
    }

    /** The hook of the JDK's logging removes its handlers and levels while the profiler stops. */
    @Test
    void informationAtTheEndIsPrintedIfTheLoggingOfTheJdkIsNotConfiguredOtherwise(@TempDir Path directory) throws Exception {
        String file = "-Dspanprof.output=" + directory.resolve("flame.html");
        for (int run = 0; run < 3; run++) {
            List<String> output = Programs.run(Short.class, List.of(file), "logs");
            assertEquals(1, outcomes(output).size(), output::toString);
            assertTrue(outcomes(output).get(0).startsWith("INFO: spanprof: stopped after"), output::toString);
        }
        List<String> ofWarnings = Programs.run(Short.class, List.of(file), "warns");
        assertEquals(List.of(), outcomes(ofWarnings), "the level of the logger excludes it");
        List<String> withoutHandlers =
                Programs.run(Short.class, List.of(file, "-Djava.util.logging.config.file=/dev/null"), "logs");
        assertEquals(List.of(), outcomes(withoutHandlers), "the program has no handler");
    }

    @Test
    void outputIsOneFileOfTheWholeRunWithoutAReceiver(@TempDir Path directory) throws Exception {
        Path page = directory.resolve("flame.html");
        List<String> output = Programs.run(Short.class, List.of("-Dspanprof.output=" + page), "exits");
        assertTrue(outcomes(output).stream().allMatch(line -> line.endsWith(page + " written")), output::toString);
        assertTrue(Files.readString(page).contains("Short.burn"), output::toString);
    }
}
