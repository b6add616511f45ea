package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.spanprof.programs.Redeployed;
import io.spanprof.programs.TwoLoaders;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.jar.Attributes;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Loading the library from the JAR, and the JAR as an agent of a program that does not use its classes. */
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

    /** Creates a JAR of the classes under test as an agent, with or without the library. */
    static Path jar(Path folder, boolean withLibrary) throws IOException {
        Path classes = Programs.locationOf(Spanprof.class);
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

    /** Runs the plain program with the JAR as its agent. */
    private List<String> runWith(Path jar, String... options) throws Exception {
        List<String> all = new ArrayList<>(List.of(options));
        all.add("-javaagent:" + jar + "=sampleRate=250,fileDirectory=" + profiles);
        return Programs.runPlain(all);
    }

    @Test
    void anAgentProfilesAProgramToItsEndAndLeavesNoFiles() throws Exception {
        Path temporary = Files.createDirectory(folder.resolve("temporary"));
        runWith(jar(true), "-Djava.io.tmpdir=" + temporary);
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
        try (Stream<Path> left = Files.list(temporary)) {
            assertEquals(List.of(), left.filter(path -> path.toString().contains("spanprof")).toList());
        }
    }

    @Test
    void theLibraryBesideAnExtensionIsFoundByTheSettingOfOpenTelemetrysAgent() throws Exception {
        Path library = Files.createFile(folder.resolve(NativeLibrary.FILE));
        assertEquals(library, NativeLibrary.besideExtension(folder.toString()));
        assertEquals(library, NativeLibrary.besideExtension("/other/extension.jar," + folder.resolve("spanprof.jar")));
        assertEquals(null, NativeLibrary.besideExtension("/other/extension.jar," + profiles));
        assertEquals(null, NativeLibrary.besideExtension(null));
    }

    @Test
    void anUnwritableTemporaryDirectoryIsSkipped() throws Exception {
        runWith(jar(true), "-Djava.io.tmpdir=/proc");
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
    }

    @Test
    void withoutTheLibraryTheProgramContinuesAfterOneWarning() throws Exception {
        List<String> output = runWith(jar(false), "-Xlog:class+load");
        // Their first use may fail for the same reason as that of the library, and then for ever.
        assertTrue(output.stream().noneMatch(line -> line.contains(" jdk.internal.logger.LoggerFinderLoader ")), output::toString);
        List<String> warnings = output.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), output::toString);
        assertTrue(warnings.get(0).contains("the JAR has no library for linux-"), warnings::toString);
    }

    /** As after a failed read: the VM keeps each class that it could not load as missing. */
    @Test
    void aJarThatBecomesUnreadableThrowsNothing() throws Exception {
        URL[] jar = {jar(false).toUri().toURL()};
        for (int readable = 0; readable < 24; readable++) {
            AtomicInteger left = new AtomicInteger(Integer.MAX_VALUE);
            try (URLClassLoader loader = new URLClassLoader(jar, ClassLoader.getPlatformClassLoader()) {
                @Override
                protected Class<?> findClass(String name) throws ClassNotFoundException {
                    if (left.getAndDecrement() <= 0) {
                        throw new ClassNotFoundException(name);
                    }
                    return super.findClass(name);
                }
            }) {
                Class<?> api = loader.loadClass(Spanprof.class.getName());
                Method tag = api.getMethod("tag", Map.class);
                left.set(readable);
                for (String method : List.of("isRunning", "start", "flush", "stats", "stop")) {
                    api.getMethod(method).invoke(null);
                }
                ((AutoCloseable) tag.invoke(null, Map.of("key", "value"))).close();
            }
        }
    }

    @Test
    void anInvalidSettingIsOneWarningAndTheProgramContinues() throws Exception {
        List<String> output = runWith(jar(true), "-javaagent:" + folder.resolve("spanprof.jar") + "=sampleRate=fast");
        List<String> warnings = output.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), output::toString);
        assertTrue(warnings.get(0).contains("sampleRate"), warnings::toString);
    }

    @Test
    void unknownOptionsAreWarningsAndPairsAfterTagsAreTags() throws Exception {
        List<String> output = runWith(jar(true),
                "-javaagent:" + folder.resolve("spanprof.jar") + "=foo,sampelRate=9,tags=region=eu,zone=b,fileDirectory=" + profiles);
        for (String expected : List.of("option `foo` of the agent is ignored", "unknown key `sampelRate`", "`sampleRate`?")) {
            assertTrue(output.stream().anyMatch(line -> line.contains(expected)), () -> expected + " in " + output);
        }
        Map<String, String> labels = ProfileFile.readAll(profiles).get(0).labels();
        assertEquals(List.of("eu", "b"), List.of(labels.get("region"), labels.get("zone")), labels::toString);
    }

    @Test
    void theVmReportsNoUncheckedJniCallOfTheLibrary() throws Exception {
        List<String> output = runWith(jar(true), "-Xcheck:jni");
        List<String> found = output.stream().filter(line -> line.contains("WARNING in native method")).toList();
        assertEquals(List.of(), found, output::toString);
    }

    @Test
    void aPermissionDeniedByAPolicyIsReported() throws Exception {
        assumeTrue(Runtime.version().feature() < 24, "a VM that has security managers");
        List<String> output = runWith(jar(true), "-Djava.security.manager=default");
        List<String> warnings = output.stream().filter(line -> line.contains("is not profiled")).toList();
        assertEquals(1, warnings.size(), output::toString);
        assertTrue(warnings.get(0).contains("security manager"), warnings::toString);
    }

    @Test
    void aStoppedApplicationsClassesCanBeUnloaded() throws Exception {
        List<String> output = Programs.run(Redeployed.class, List.of(), profiles.toString());
        assertEquals(0, Programs.number(output, "left"), output::toString);
        assertEquals(1, Programs.number(output, "ended"), output::toString);
    }

    @Test
    void theLibraryIsAFileIfInMemoryFilesAreDenied() throws Exception {
        assumeTrue(Runtime.version().feature() >= 22, "a program that calls the kernel from Java");
        List<String> output = Programs.run("src/test/preview/NoMemoryFiles.java", System.getProperty("java.class.path"),
                List.of(), profiles.toString());
        List<Long> found = Stream.of("sandboxed", "runs", "from_memory", "stopped").map(name -> Programs.number(output, name)).toList();
        assertEquals(List.of(1L, 1L, 0L, 1L), found, output::toString);
    }

    @Test
    void theLibraryIsLoadedFromTheConfiguredDirectory() throws Exception {
        List<String> options = List.of("-D" + NativeLibrary.DIRECTORY_PROPERTY + "=" + folder);
        List<String> output = Programs.run(TwoLoaders.class, options, profiles.toString());
        assertEquals(1, Programs.number(output, "stopped_by_second"), output::toString);
        assertEquals(0, Programs.number(output, "copies_in_memory"), output::toString);
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(profiles), left.toList());
        }
    }

    @Test
    void aSeccompFilterThatKillsOnInMemoryFilesDoesNotEndTheProcess() throws Exception {
        assumeTrue(Runtime.version().feature() >= 22, "a program that calls the kernel from Java");
        List<String> output = Programs.run("src/test/preview/NoMemoryFiles.java", System.getProperty("java.class.path"),
                List.of(), profiles.toString(), "kill");
        for (String name : List.of("sandboxed", "runs", "stopped")) {
            assertEquals(1, Programs.number(output, name), output::toString);
        }
        assertEquals(0, Programs.number(output, "from_memory"), output::toString);
    }

    @Test
    void theCompressedLibraryIsUnpackedForTheVmsAgentLoader() throws Exception {
        String classes = Programs.locationOf(Spanprof.class).toString();
        List<String> output = Programs.run("io.spanprof.Unpack", classes, List.of(), folder.toString());
        assertEquals(List.of(folder.resolve(NativeLibrary.FILE).toString()), output);
        Programs.runPlain(List.of("-agentpath:" + output.get(0) + "=sampleRate=250,fileDirectory=" + profiles));
        assertTrue(Programs.plainNanoseconds(profiles) > 500_000_000, () -> "of the second that it worked");
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(folder.resolve(NativeLibrary.FILE), profiles), left.sorted().toList());
        }
    }

    @Test
    void aLibraryBesideTheJarIsSharedByAllClassLoaders() throws Exception {
        Path jar = jar(false);
        NativeLibrary.unpackInto(folder);
        String classPath = jar + File.pathSeparator + Programs.locationOf(TwoLoaders.class);
        List<String> output = Programs.run(TwoLoaders.class.getName(), classPath, List.of(), profiles.toString());
        assertEquals(1, Programs.number(output, "second_sees_it_running"), output::toString);
        assertEquals(1, Programs.number(output, "stopped_by_second"), output::toString);
        assertEquals(0, Programs.number(output, "copies_in_memory"), output::toString);
    }
}
