package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Applications;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Several applications of one server: the profiler runs until each application that started it has stopped it. */
class ApplicationsTest {
    private static final List<String> EXPECTED = List.of("after_the_first_stopped 1", "after_it_stopped_again 1",
            "after_one_that_never_started_stopped 1", "first_is_gone 1", "while_the_second_remains 1", "after_all_stopped 0");

    @TempDir
    Path profiles;

    private List<String> run(String jar, String... options) throws Exception {
        return Programs.run(Applications.class, List.of(options), profiles.toString(), jar);
    }

    private static List<String> states(List<String> output) {
        return output.stream().filter(line -> line.matches("[a-z_]+ [01]")).toList();
    }

    @Test
    void startsAndStopsAreCountedIfEachApplicationHasItsOwnJar() throws Exception {
        List<String> output = run("own");
        assertEquals(EXPECTED, states(output), output::toString);
        assertTrue(!ProfileFile.readAll(profiles).isEmpty(), output::toString);
    }

    @Test
    void startsAndStopsAreCountedIfTheServerHasTheJarForAllApplications() throws Exception {
        List<String> output = run("shared");
        assertEquals(EXPECTED, states(output), output::toString);
    }

    @Test
    void settingsThatDifferFromThoseOfTheFirstStartAreOneWarning() throws Exception {
        List<String> output = run("own");
        List<String> warnings = output.stream().filter(line -> line.contains("whose settings stay")).toList();
        assertEquals(1, warnings.size(), output::toString);
        assertTrue(warnings.get(0).contains("sampleRate is `250`, not `50`"), warnings::toString);
    }

    @Test
    void noApplicationStopsAProfilerThatAnAgentStarted() throws Exception {
        Path jar = LibraryTest.jar(profiles, true);
        List<String> output = run("own", "-javaagent:" + jar + "=sampleRate=250,fileDirectory=" + profiles);
        List<String> expected = new ArrayList<>(EXPECTED);
        expected.set(expected.size() - 1, "after_all_stopped 1");
        assertEquals(expected, states(output), output::toString);
    }
}
