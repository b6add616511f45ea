package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.ServesProfiles;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Profiles and control operations by a servlet, in a real server of either servlet API. */
class PprofServletTest {
    @TempDir
    Path profiles;

    private static void assertAnswered(List<String> output, String request, int times, String answer) {
        String begin = request + " " + answer;
        assertEquals(times, output.stream().filter(line -> (line + " ").startsWith(begin + " ")).count(),
                () -> begin + " in " + output);
    }

    @ParameterizedTest
    @ValueSource(strings = {"jakarta", "javax"})
    void aServletServesProfilesAndControlOperations(String api) throws Exception {
        List<String> output = Programs.run(ServesProfiles.class, List.of(), profiles.toString(), api);
        assertAnswered(output, "GET /debug/pprof/", 1, "503");
        assertAnswered(output, "GET /debug/pprof/", 1, "401");
        assertAnswered(output, "GET /debug/pprof/", 1, "200");
        assertAnswered(output, "GET /debug/pprof", 1, "301 pprof/");
        assertAnswered(output, "GET /internal/profiles", 1, "301 profiles/");
        assertAnswered(output, "GET /internal/profiles/nothing", 1, "404");
        assertAnswered(output, "GET /internal/profiles/profile?seconds=abc", 1, "400");
        assertAnswered(output, "POST /debug/pprof/profile", 1, "405");
        assertAnswered(output, "HEAD /debug/pprof/", 1, "200 - 0");
        assertAnswered(output, "PATCH /debug/spanprof", 1, "200");
        assertAnswered(output, "PATCH /debug/spanprof", 1, "413");
        assertAnswered(output, "POST /internal/profiles/spanprof/burst?seconds=10", 1, "200");
        assertAnswered(output, "BREW /debug/spanprof", 1, "405");
        assertTrue(output.contains("pulled 200") && !output.contains("busy 0"), output::toString);
        assertTrue(nanosecondsOfBurn("pulled.pb.gz") > 100_000_000, "the pull has the CPU time of the program");
        assertTrue(ProfileFile.read(profiles.resolve("heap.pb.gz")).stream()
                .anyMatch(sample -> sample.has(ServesProfiles.class.getName() + ".burnForPull") && sample.bytes() > 1_000_000),
                "allocations since the start, without the key pull");
    }

    private long nanosecondsOfBurn(String file) throws Exception {
        return ProfileFile.sum(ProfileFile.read(profiles.resolve(file)),
                sample -> sample.has(ServesProfiles.class.getName() + ".burnForPull"));
    }
}
