package io.spanprof;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Finds and loads the library: beside the JAR when it lies there, else from within the JAR by way of a file that only
 * its owner may touch. When that fails every verb does nothing, and one warning says why.
 */
final class NativeLibrary {
    /** Where libraries may be written when the temporary directory does not allow it. */
    static final String DIRECTORY_PROPERTY = "spanprof.libraryDirectory";

    /** Set by the library itself, for its copies. */
    private static final String INSTANCE_PROPERTY = "io.spanprof.instance";
    private static final String FILE = "libspanprof_java.so";
    /** Names tried for a directory that nobody has yet. */
    private static final int ATTEMPTS = 100;
    private static volatile boolean loaded;
    private static volatile boolean tried;

    private NativeLibrary() {}

    /**
     * Whether it is loaded; where another class loader has brought it into this process, this one joins it now: they share
     * one profiler.
     */
    static boolean isLoaded() {
        return loaded || !tried && System.getProperty(INSTANCE_PROPERTY) != null && load();
    }

    /** Whether it is loaded, or can be now: labels may be given before the profiler is started. */
    static boolean isReady() {
        return loaded || !tried && load();
    }

    /** Loads the library, once. False when there is none that works here. */
    static synchronized boolean load() {
        if (!tried) {
            try {
                loadFirstThatWorks();
                loaded = true;
            } catch (IOException | LinkageError | RuntimeException failure) {
                HostLog.warn("spanprof: this process is not profiled: " + failure.getMessage());
            } finally {
                // Last: who comes meanwhile waits for the outcome.
                tried = true;
            }
        }
        return loaded;
    }

    private static void loadFirstThatWorks() throws IOException {
        List<String> refused = new ArrayList<>();
        Path beside = besideJar();
        if (beside != null && Files.isReadable(beside)) {
            try {
                System.load(beside.toString());
                return;
            } catch (UnsatisfiedLinkError failure) {
                // Among others: an application of this server has it loaded from there, and the VM lets one only.
                refused.add(beside + ": " + failure.getMessage());
            }
        }
        for (Path directory : directories()) {
            try (InputStream library = open(beside)) {
                loadThrough(directory, library);
                return;
            } catch (IOException | UnsatisfiedLinkError failure) {
                refused.add(directory + ": " + failure.getMessage());
            }
        }
        throw new IOException("the library cannot be loaded (" + String.join("; ", refused) + "); set -D"
                + DIRECTORY_PROPERTY + " to a directory from which programs may run");
    }

    /** The library within the JAR, or the one beside it. */
    private static InputStream open(Path beside) throws IOException {
        InputStream library = NativeLibrary.class.getResourceAsStream("native/" + platform() + "/" + FILE);
        if (library == null && beside != null && Files.isReadable(beside)) {
            return Files.newInputStream(beside);
        }
        if (library == null) {
            throw new IOException("the JAR has no library for " + platform());
        }
        return library;
    }

    /** A file of the owner's alone, gone again as soon as it is loaded. */
    private static void loadThrough(Path directory, InputStream library) throws IOException {
        Path own = ownDirectory(directory);
        Path file = own.resolve(FILE);
        try {
            Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
            System.load(file.toString());
        } finally {
            Files.deleteIfExists(file);
            Files.deleteIfExists(own);
        }
    }

    /**
     * A new directory of the owner's alone. By {@link Files#createTempDirectory} it takes a third of a first start: the
     * JDK's random numbers are slow to begin. What somebody else made before is refused, whatever its name.
     */
    private static Path ownDirectory(Path parent) throws IOException {
        FileAttribute<?> owners = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
        for (int attempt = 1;; attempt++) {
            Path own = parent.resolve("spanprof-" + System.currentTimeMillis() + "-" + System.nanoTime());
            try {
                return Files.createDirectory(own, owners);
            } catch (FileAlreadyExistsException taken) {
                if (attempt == ATTEMPTS) {
                    throw taken;
                }
            }
        }
    }

    private static List<Path> directories() {
        List<Path> directories = new ArrayList<>();
        String theirs = System.getProperty("pyroscope.tmp.dir", System.getenv("PYROSCOPE_TMP_DIR"));
        String asked = System.getProperty(DIRECTORY_PROPERTY, theirs);
        if (asked != null) {
            directories.add(Path.of(asked));
        }
        directories.add(Path.of(System.getProperty("java.io.tmpdir", "/tmp")));
        // Memory, for machines whose temporary directory is read-only or runs nothing.
        directories.add(Path.of("/dev/shm"));
        return directories;
    }

    private static Path besideJar() {
        try {
            URI place = NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI();
            return Path.of(place).resolveSibling(FILE).toAbsolutePath();
        } catch (Exception unknown) {
            // Classes that come from elsewhere than a file have nothing beside them.
            return null;
        }
    }

    static String platform() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String machine = System.getProperty("os.arch");
        boolean isIntel = machine.equals("amd64") || machine.equals("x86_64");
        return system + "-" + (isIntel ? "x86_64" : machine);
    }
}
