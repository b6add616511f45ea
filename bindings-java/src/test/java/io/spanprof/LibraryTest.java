package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.spanprof.programs.Redeployed;
import io.spanprof.programs.TwoLoaders;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.jar.Attributes;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The library on its way out of the JAR, and the JAR as an agent of a program that knows nothing of it. */
class LibraryTest {
    @TempDir
    Path folder;

    private Path profiles;

    @BeforeEach
    void folders() throws IOException {
        profiles = Files.createDirectory(folder.resolve("profiles"));
    }

    private Path jar(boolean withLibrary) throws IOException {
        return jar(folder, withLibrary);
    }

    /** A JAR of the classes under test, as an agent; with the library in it or not. */
    static Path jar(Path folder, boolean withLibrary) throws IOException {
        Path classes = Programs.placeOf(Spanprof.class);
        Manifest manifest = new Manifest();
        manifest.getMainAttributes().put(Attributes.Name.MANIFEST_VERSION, "1.0");
        manifest.getMainAttributes().putValue("Premain-Class", SpanprofAgent.class.getName());
        Path jar = folder.resolve("spanprof.jar");
        try (OutputStream out = Files.newOutputStream(jar);
                JarOutputStream entries = new JarOutputStream(out, manifest);
                Stream<Path> files = Files.walk(classes)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                if (withLibrary || !file.startsWith(classes.resolve("io/spanprof/native"))) {
                    entries.putNextEntry(new JarEntry(classes.relativize(file).toString()));
                    Files.copy(file, entries);
                }
            }
        }
        return jar;
    }

    /** The plain program with the JAR as its agent. */
    private List<String> runWith(Path jar, String... options) throws Exception {
        List<String> all = new ArrayList<>(List.of(options));
        all.add("-javaagent:" + jar + "=sampleRate=250,fileDirectory=" + profiles);
        return Programs.runPlain(all);
    }

    @Test
    void anAgentProfilesAProgramToItsEndAndLeavesNoFileOfItsOwn() throws Exception {
        Path temporary = Files.createDirectory(folder.resolve("temporary"));
        runWith(jar(true), "-Djava.io.tmpdir=" + temporary);
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
        try (Stream<Path> left = Files.list(temporary)) {
            assertEquals(List.of(), left.filter(path -> path.toString().contains("spanprof")).toList());
        }
    }

    @Test
    void aTemporaryDirectoryThatCannotBeWrittenIsNoObstacle() throws Exception {
        runWith(jar(true), "-Djava.io.tmpdir=/proc");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void withoutItsLibraryTheProgramRunsOnAfterOneWarning() throws Exception {
        List<String> said = runWith(jar(false));
        List<String> warnings = said.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), said::toString);
        assertTrue(warnings.get(0).contains("the JAR has no library for linux-"), warnings::toString);
    }

    @Test
    void aSettingThatCannotWorkIsOneWarningAndTheProgramRunsOn() throws Exception {
        List<String> said = runWith(jar(true), "-javaagent:" + folder.resolve("spanprof.jar") + "=sampleRate=fast");
        List<String> warnings = said.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), said::toString);
        assertTrue(warnings.get(0).contains("sampleRate"), warnings::toString);
    }

    @Test
    void optionsThatMeanNothingAreWarningsAndPairsBehindTagsAreTags() throws Exception {
        List<String> said = runWith(jar(true),
                "-javaagent:" + folder.resolve("spanprof.jar") + "=foo,sampelRate=9,tags=region=eu,zone=b,fileDirectory=" + profiles);
        for (String expected : List.of("option `foo` of the agent is ignored", "unknown key `sampelRate`", "`sampleRate`?")) {
            assertTrue(said.stream().anyMatch(line -> line.contains(expected)), () -> expected + " in " + said);
        }
        Map<String, String> labels = ProfileFile.readAll(profiles).get(0).labels();
        assertEquals(List.of("eu", "b"), List.of(labels.get("region"), labels.get("zone")), labels::toString);
    }

    @Test
    void theVmFindsNoUncheckedCallOfTheLibrary() throws Exception {
        List<String> said = runWith(jar(true), "-Xcheck:jni");
        List<String> found = said.stream().filter(line -> line.contains("WARNING in native method")).toList();
        assertEquals(List.of(), found, said::toString);
    }

    @Test
    void whatAPolicyDeniesIsNamed() throws Exception {
        assumeTrue(Runtime.version().feature() < 24, "a VM that has security managers");
        List<String> said = runWith(jar(true), "-Djava.security.manager=default");
        List<String> warnings = said.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), said::toString);
        assertTrue(warnings.get(0).contains("security manager"), warnings::toString);
    }

    @Test
    void whatAnApplicationStoppedIsNothingThatKeepsItsClasses() throws Exception {
        List<String> said = Programs.run(Redeployed.class, List.of(), profiles.toString());
        assertEquals(0, Programs.number(said, "left"), said::toString);
        assertEquals(1, Programs.number(said, "ended"), said::toString);
    }

    @Test
    void whereNoLibraryMayLieInMemoryItIsAFile() throws Exception {
        assumeTrue(Runtime.version().feature() >= 22, "a program that calls the kernel from Java");
        List<String> said = Programs.run("src/test/preview/NoMemoryFiles.java", System.getProperty("java.class.path"),
                List.of(), profiles.toString());
        List<Long> found = Stream.of("sandboxed", "runs", "from_memory", "stopped").map(name -> Programs.number(said, name)).toList();
        assertEquals(List.of(1L, 1L, 0L, 1L), found, said::toString);
    }

    @Test
    void aDirectoryThatIsNamedIsWhereTheLibraryIsLoadedFrom() throws Exception {
        List<String> options = List.of("-D" + NativeLibrary.DIRECTORY_PROPERTY + "=" + folder);
        List<String> said = Programs.run(TwoLoaders.class, options, profiles.toString());
        assertEquals(1, Programs.number(said, "stopped_by_second"), said::toString);
        assertEquals(0, Programs.number(said, "copies_in_memory"), said::toString);
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(profiles), left.toList());
        }
    }

    @Test
    void aFilterOfTheStartingThreadThatKillsAtFilesInMemoryEndsNothing() throws Exception {
        assumeTrue(Runtime.version().feature() >= 22, "a program that calls the kernel from Java");
        List<String> said = Programs.run("src/test/preview/NoMemoryFiles.java", System.getProperty("java.class.path"),
                List.of(), profiles.toString(), "kill");
        for (String name : List.of("sandboxed", "runs", "stopped")) {
            assertEquals(1, Programs.number(said, name), said::toString);
        }
        assertEquals(0, Programs.number(said, "from_memory"), said::toString);
    }

    @Test
    void whatTravelsCompressedIsUnpackedForTheVmsOwnLoader() throws Exception {
        String classes = Programs.placeOf(Spanprof.class).toString();
        List<String> said = Programs.run("io.spanprof.Unpack", classes, List.of(), folder.toString());
        assertEquals(List.of(folder.resolve(NativeLibrary.FILE).toString()), said);
        Programs.runPlain(List.of("-agentpath:" + said.get(0) + "=sampleRate=250,fileDirectory=" + profiles));
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(folder.resolve(NativeLibrary.FILE), profiles), left.sorted().toList());
        }
    }

    @Test
    void aLibraryBesideTheJarServesEveryClassLoader() throws Exception {
        Path jar = jar(false);
        NativeLibrary.unpackInto(folder);
        String classPath = jar + File.pathSeparator + Programs.placeOf(TwoLoaders.class);
        List<String> said = Programs.run(TwoLoaders.class.getName(), classPath, List.of(), profiles.toString());
        assertEquals(1, Programs.number(said, "second_sees_it_running"), said::toString);
        assertEquals(1, Programs.number(said, "stopped_by_second"), said::toString);
        assertEquals(0, Programs.number(said, "copies_in_memory"), said::toString);
    }
}
