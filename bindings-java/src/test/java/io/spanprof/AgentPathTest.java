package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.TwoLoaders;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The library as a native agent, and one instance of it for all class loaders. */
class AgentPathTest {
    @TempDir
    static Path unpacked;

    @TempDir
    Path profiles;

    private static Path library() throws IOException {
        Path library = unpacked.resolve(NativeLibrary.FILE);
        return Files.exists(library) ? library : NativeLibrary.unpackInto(unpacked);
    }

    /** Runs the plain program with the library as its agent. */
    private List<String> runWith(String settings, String... options) throws Exception {
        List<String> all = new ArrayList<>(List.of(options));
        all.add("-agentpath:" + library() + "=fileDirectory=" + profiles + "," + settings);
        return Programs.runPlain(all);
    }

    @Test
    void theNativeAgentProfilesAProgramToItsEnd() throws Exception {
        runWith("sampleRate=250");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void interpretedCodeIsProfiledFromTheStart() throws Exception {
        runWith("sampleRate=250", "-Xint");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void theNativeAgentSupportsAsyncGetCallTrace() throws Exception {
        runWith("sampleRate=250,stackWalk=vm");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void anInvalidSettingIsOneWarningAndTheProgramContinues() throws Exception {
        List<String> output = runWith("sampleRate=fast");
        List<String> warnings = output.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), output::toString);
        assertTrue(warnings.get(0).contains("sampleRate"), warnings::toString);
    }

    @Test
    void applicationsOfTwoClassLoadersShareOneProfiler() throws Exception {
        List<String> output = Programs.run(TwoLoaders.class, List.of(), profiles.toString());
        assertEquals(1, Programs.number(output, "second_sees_it_running"), output::toString);
        assertEquals(1, Programs.number(output, "stopped_by_second"), output::toString);
        assertEquals(2, Programs.number(output, "copies_in_memory"), output::toString);
        assertOneProfilerForBothApplications();
    }

    @Test
    void theNativeAgentIsSharedWithThePackageOfEveryClassLoader() throws Exception {
        List<String> options = List.of("-agentpath:" + library() + "=sampleRate=250,fileDirectory=" + profiles);
        List<String> output = Programs.run(TwoLoaders.class, options, profiles.toString());
        assertEquals(1, Programs.number(output, "second_sees_it_running"), output::toString);
        assertOneProfilerForBothApplications();
    }

    private void assertOneProfilerForBothApplications() throws IOException {
        List<ProfileFile.Sample> work = ProfileFile.readAll(profiles).stream()
                .filter(sample -> sample.has("io.spanprof.programs.TwoLoaders$Application.work")).toList();
        long labelled = ProfileFile.sum(work, sample -> "second".equals(sample.labels().get("application")));
        assertTrue(labelled > 250_000_000, () -> labelled + " of the half second of work: " + work);
    }
}
