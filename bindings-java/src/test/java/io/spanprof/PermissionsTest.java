package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.spanprof.programs.Untrusted;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A security policy that grants the program nothing. */
class PermissionsTest {
    @TempDir
    Path folder;

    @BeforeEach
    void versionWithPolicies() {
        assumeTrue(Programs.VERSION < 24);
    }

    private List<String> run(String policy, String api) throws Exception {
        Path file = Files.writeString(folder.resolve("policy"), policy);
        return Programs.run(Untrusted.class, List.of("-Djava.security.manager", "-Djava.security.policy==" + file),
                folder.toString(), api);
    }

    private static String granted() {
        return "grant codeBase \"file:" + Programs.locationOf(Spanprof.class) + "/-\" { permission java.security.AllPermission; };";
    }

    private static void assertStates(List<String> output, String when, boolean isRunning) {
        for (String call : List.of("running", "stats", "update")) {
            assertTrue(output.contains(when + "_" + call + " " + isRunning), output::toString);
        }
        for (String call : List.of("tag 42", "capture denied")) {
            assertTrue(output.contains(when + "_" + call), output::toString);
        }
    }

    @Test
    void theProgramIsProfiledIfTheJarHasPermissions() throws Exception {
        List<String> output = run(granted(), "own");
        assertStates(output, "before", false);
        assertStates(output, "during", true);
        assertStates(output, "after", false);
        assertTrue(output.containsAll(List.of("start true", "during_flush true", "stop true")), output::toString);
        assertTrue(!ProfileFile.readAll(folder).isEmpty(), output::toString);
    }

    @Test
    void pyroscopesNamesWorkIfTheJarHasPermissions() throws Exception {
        List<String> output = run(granted(), "pyroscope");
        assertStates(output, "during", true);
        assertEquals(1, output.stream().filter(line -> line.contains("setTmpDir")).count(), output::toString);
    }

    @Test
    void theProgramIsNotProfiledAfterOneLineIfTheJarHasNone() throws Exception {
        List<String> output = run("grant codeBase \"file:/nowhere\" {};", "own");
        for (String when : List.of("before", "during", "after")) {
            assertStates(output, when, false);
        }
        assertTrue(output.containsAll(List.of("start false", "during_flush true", "stop true")), output::toString);
        assertEquals(1, output.stream().filter(line -> line.contains("spanprof:")).count(), output::toString);
    }
}
