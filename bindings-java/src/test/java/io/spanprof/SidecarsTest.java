package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Shares;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.yaml.snakeyaml.Yaml;

/** The side-cars of profile files: the JSON beside each file, with the version that ran and the time of its window. */
class SidecarsTest {
    @TempDir
    Path profiles;

    @Test
    void aSideCarHasTheVersionsOfTheServiceAndOfJavaAndTheWindow() throws Exception {
        List<String> attributes = List.of("-Dspanprof.resourceAttributes=service.version=1.3.0,vcs.ref.head.revision=4f2a");
        Programs.run(Shares.class, attributes, profiles.toString(), "250", "5");
        List<Map<String, String>> sidecars = sidecars();
        assertFalse(sidecars.isEmpty(), "no side-car");
        for (Map<String, String> sidecar : sidecars) {
            assertEquals("1.3.0", sidecar.get("service.version"), sidecar::toString);
            assertEquals("4f2a", sidecar.get("git.commit"), sidecar::toString);
            assertTrue(sidecar.get("runtime.name").contains("OpenJDK"), sidecar::toString);
            String version = sidecar.get("runtime.version");
            assertEquals(Runtime.version().feature(), Runtime.Version.parse(version).feature(), sidecar::toString);
            assertTrue(sidecar.get("window.start").compareTo(sidecar.get("window.end")) < 0, sidecar::toString);
            assertFalse(sidecar.get("service.name").isEmpty(), sidecar::toString);
        }
    }

    private List<Map<String, String>> sidecars() throws IOException {
        try (Stream<Path> files = Files.list(profiles)) {
            return files.filter(file -> file.toString().endsWith(".json")).map(SidecarsTest::read).toList();
        }
    }

    /** JSON is YAML. */
    private static Map<String, String> read(Path file) {
        try {
            return new Yaml().load(Files.readString(file));
        } catch (IOException unreadable) {
            throw new AssertionError(file.toString(), unreadable);
        }
    }
}
