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

/** The library as an agent of the VM by itself, and one instance of it for every class loader. */
class AgentPathTest {
    @TempDir
    static Path unpacked;

    @TempDir
    Path profiles;

    private static Path library() throws IOException {
        Path library = unpacked.resolve(NativeLibrary.FILE);
        return Files.exists(library) ? library : NativeLibrary.unpackInto(unpacked);
    }

    /** The plain program with the library as its agent. */
    private List<String> runWith(String settings, String... options) throws Exception {
        List<String> all = new ArrayList<>(List.of(options));
        all.add("-agentpath:" + library() + "=fileDirectory=" + profiles + "," + settings);
        return Programs.runPlain(all);
    }

    @Test
    void theLibraryAloneProfilesAProgramToItsEnd() throws Exception {
        runWith("sampleRate=250");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void interpretedCodeIsProfiledFromTheFirstInstantToo() throws Exception {
        runWith("sampleRate=250", "-Xint");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void theVmCanWalkTheStacksOfAnAgentToo() throws Exception {
        runWith("sampleRate=250,stackWalk=vm");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void aSettingThatCannotWorkIsOneWarningAndTheProgramRunsOn() throws Exception {
        List<String> said = runWith("sampleRate=fast");
        List<String> warnings = said.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), said::toString);
        assertTrue(warnings.get(0).contains("sampleRate"), warnings::toString);
    }

    @Test
    void applicationsOfTwoClassLoadersShareOneProfiler() throws Exception {
        List<String> said = Programs.run(TwoLoaders.class, List.of(), profiles.toString());
        assertEquals(1, Programs.number(said, "second_sees_it_running"), said::toString);
        assertEquals(1, Programs.number(said, "stopped_by_second"), said::toString);
        assertEquals(2, Programs.number(said, "copies_in_memory"), said::toString);
        bothApplicationsAreOne();
    }

    @Test
    void anAgentServesThePackageOfEveryClassLoader() throws Exception {
        List<String> options = List.of("-agentpath:" + library() + "=sampleRate=250,fileDirectory=" + profiles);
        List<String> said = Programs.run(TwoLoaders.class, options, profiles.toString());
        assertEquals(1, Programs.number(said, "second_sees_it_running"), said::toString);
        bothApplicationsAreOne();
    }

    private void bothApplicationsAreOne() throws IOException {
        List<ProfileFile.Sample> work = ProfileFile.readAll(profiles).stream()
                .filter(sample -> sample.has("io.spanprof.programs.TwoLoaders$Application.work")).toList();
        long labelled = ProfileFile.sum(work, sample -> "second".equals(sample.labels().get("application")));
        assertTrue(labelled > 250_000_000, () -> labelled + " of the half second of work: " + work);
    }
}
