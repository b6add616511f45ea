package io.spanprof;

import java.io.FileOutputStream;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.jar.JarFile;
import java.util.zip.ZipEntry;

/**
 * Finds and loads the library: beside the JAR when it lies there, else out of the JAR, by way of a directory that only
 * its owner may touch. When that fails every verb does nothing, and one warning says why.
 */
final class NativeLibrary {
    /** Where libraries may be written when the temporary directory does not allow it. */
    static final String DIRECTORY_PROPERTY = "spanprof.libraryDirectory";

    /** Set by the library itself, for its copies. */
    private static final String INSTANCE_PROPERTY = "io.spanprof.instance";
    static final String FILE = "libspanprof_java.so";
    /** As it travels. */
    private static final String PACKED = FILE + ".lz4";
    private static final String OPENER = "libspanprof_java_opener.so";
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
            } catch (SecurityException denied) {
                HostLog.warn("spanprof: this process is not profiled: the security manager of this program denies what loading "
                        + "the library needs, " + denied.getMessage()
                        + "; grant spanprof.jar java.security.AllPermission in its policy, or run without a security manager");
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
        if (beside != null) {
            try {
                System.load(beside.toString());
                return;
            } catch (UnsatisfiedLinkError failure) {
                // Among others: an application of this server has it loaded from there, and the VM lets one only.
                refused.add(beside + ": " + failure.getMessage());
            }
        }
        boolean isWithin = isWithin();
        if (!isWithin && beside == null) {
            throw new IOException("the JAR has no library for " + platform());
        }
        boolean mayLieInMemory = namedDirectory() == null;
        for (Path directory : directories()) {
            try {
                loadThrough(directory, isWithin ? null : beside, mayLieInMemory);
                return;
            } catch (IOException | UnsatisfiedLinkError failure) {
                refused.add(directory + ": " + failure.getMessage());
            }
        }
        throw new IOException("the library cannot be loaded (" + String.join("; ", refused) + "); set -D"
                + DIRECTORY_PROPERTY + " to a directory from which programs may run");
    }

    /** By files of the owner's alone, gone again as soon as they are loaded: a copy of that library, or what the JAR has. */
    private static void loadThrough(Path directory, Path library, boolean mayLieInMemory) throws IOException {
        Path own = ownDirectory(directory);
        Path file = own.resolve(FILE);
        try {
            if (library != null) {
                Files.copy(library, file);
            } else {
                loadOpener(own);
                if (mayLieInMemory && isLoadedFromMemory(file)) {
                    return;
                }
                unpack(file);
            }
            System.load(file.toString());
        } finally {
            // What cannot go, as on a network's disk, is no failure.
            file.toFile().delete();
            own.toFile().delete();
        }
    }

    /** The small library that unpacks the other. */
    private static void loadOpener(Path own) throws IOException {
        Path file = own.resolve(OPENER);
        try {
            try (InputStream opener = travelling(OPENER); OutputStream out = new FileOutputStream(file.toFile())) {
                opener.transferTo(out);
            }
            System.load(file.toString());
        } finally {
            file.toFile().delete();
        }
    }

    /** Without a file to be written. False where memory may hold no library, or none may be run from there. */
    private static boolean isLoadedFromMemory(Path link) {
        try (InputStream packed = travelling(PACKED)) {
            int number = Opener.toMemory(packed);
            if (number < 0) {
                return false;
            }
            // The VM and the linker tell libraries apart by their names: this one is nobody else's.
            Files.createSymbolicLink(link, Path.of("/proc/self/fd/" + number));
            System.load(link.toString());
            return true;
        } catch (IOException | UnsupportedOperationException | UnsatisfiedLinkError notFromMemory) {
            return false;
        } finally {
            Opener.close();
            link.toFile().delete();
        }
    }

    private static void unpack(Path file) throws IOException {
        try (InputStream packed = travelling(PACKED)) {
            Charset names = Charset.forName(System.getProperty("sun.jnu.encoding", "UTF-8"));
            byte[] failure = Opener.toFile(packed, file.toString().getBytes(names));
            if (failure != null) {
                throw new IOException(file + ": " + new String(failure, StandardCharsets.UTF_8));
            }
        }
    }

    /** Puts the library into a directory from which programs may run; its path there. */
    static Path unpackInto(Path directory) throws IOException {
        if (!isWithin()) {
            throw new IOException("the JAR has no library for " + platform());
        }
        if (!Files.isDirectory(directory)) {
            Files.createDirectories(directory);
        }
        Path own = ownDirectory(directory);
        Path file = own.resolve(FILE);
        try {
            loadOpener(own);
            unpack(file);
            return Files.move(file, directory.resolve(FILE), StandardCopyOption.REPLACE_EXISTING);
        } finally {
            file.toFile().delete();
            own.toFile().delete();
        }
    }

    private static boolean isWithin() throws IOException {
        try (InputStream opener = travelling(OPENER)) {
            return opener != null;
        }
    }

    /** What the JAR has for this platform under that name; null when it has none. */
    private static InputStream travelling(String name) throws IOException {
        String resource = "native/" + platform() + "/" + name;
        Path jar = jar();
        if (jar != null && Files.isRegularFile(jar)) {
            // As a resource it would take ten milliseconds: the JDK makes its connections ready for that.
            JarFile files = new JarFile(jar.toFile());
            ZipEntry entry = files.getEntry("io/spanprof/" + resource);
            if (entry != null) {
                return new FilterInputStream(files.getInputStream(entry)) {
                    @Override
                    public void close() throws IOException {
                        files.close();
                    }
                };
            }
            files.close();
        }
        return NativeLibrary.class.getResourceAsStream(resource);
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

    /** The directory that the property or its variable names; null where none does. */
    private static String namedDirectory() {
        return System.getProperty(DIRECTORY_PROPERTY, System.getenv("SPANPROF_LIBRARY_DIRECTORY"));
    }

    private static List<Path> directories() {
        List<Path> directories = new ArrayList<>();
        String theirs = System.getProperty("pyroscope.tmp.dir", System.getenv("PYROSCOPE_TMP_DIR"));
        String named = namedDirectory();
        String asked = named != null ? named : theirs;
        if (asked != null) {
            directories.add(Path.of(asked));
        }
        directories.add(Path.of(System.getProperty("java.io.tmpdir", "/tmp")));
        // Memory, for machines whose temporary directory is read-only or runs nothing.
        directories.add(Path.of("/dev/shm"));
        return directories;
    }

    /** The library beside the JAR; null where there is none to read. */
    private static Path besideJar() {
        Path jar = jar();
        Path beside = jar == null ? null : jar.resolveSibling(FILE).toAbsolutePath();
        return beside != null && Files.isReadable(beside) ? beside : null;
    }

    /** The JAR, or the directory of the classes; null for classes that come from elsewhere. */
    private static Path jar() {
        try {
            return Path.of(NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        } catch (SecurityException denied) {
            throw denied;
        } catch (Exception unknown) {
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
