package io.spanprof;

import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
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
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.Supplier;
import java.util.jar.JarFile;
import java.util.zip.ZipEntry;

/**
 * Loads the native library: a file beside the JAR if there is one, else unpacked from the JAR by way of a private
 * directory. On failure every method of the API does nothing, and one warning states the reason.
 *
 * <p>The JAR holds the library as LZ4, and a small library that unpacks it into a file in memory: `start` takes 19 to 29 ms in a fresh
 * process (Java 17 to 25) instead of 54 to 60 ms where the JDK inflates it. The VM loads it through a link with a unique name, because
 * numbers under `/proc/self/fd` are reused and libraries are identified by name.
 */
final class NativeLibrary {
    /** The directory for the unpacked library, in place of the temporary directory. */
    static final String DIRECTORY_PROPERTY = "spanprof.libraryDirectory";

    /** Set by the first copy of the library for later copies. */
    private static final String INSTANCE_PROPERTY = "io.spanprof.instance";
    static final String FILE = "libspanprof_java.so";
    /** The compressed library in the JAR. */
    private static final String PACKED = FILE + ".lz4";
    private static final String OPENER = "libspanprof_java_opener.so";
    /** Attempts to create a private directory with an unused name. */
    private static final int ATTEMPTS = 100;
    /** Null until the memory map of the process was read for it. */
    private static String platform;
    private static volatile boolean isLoaded;
    private static volatile boolean isAttempted;

    private static final Supplier<Boolean> IS_PUBLISHED = new Supplier<Boolean>() {
        @Override
        public Boolean get() {
            return System.getProperty(INSTANCE_PROPERTY) != null;
        }
    };

    private NativeLibrary() {}

    /**
     * Whether the library is loaded. If another class loader has loaded it into this process, it is loaded here too; both
     * share one profiler.
     */
    static boolean isLoaded() {
        return isLoaded || !isAttempted && isInProcess() && isReady();
    }

    /** Whether another class loader has loaded the library; true if a security policy hides that, which loading reports. */
    private static boolean isInProcess() {
        try {
            return Privileged.call(IS_PUBLISHED);
        } catch (SecurityException denied) {
            return true;
        }
    }

    /** Whether the library is loaded or can be loaded now: labels may be set before the profiler is started. */
    static boolean isReady() {
        try {
            return isLoaded || !isAttempted && load();
        } catch (RuntimeException | Error failure) {
            // Of the VM, such as a lack of memory for the warning.
            return false;
        }
    }

    /** Loads the library, once. False if no library can be loaded. */
    static synchronized boolean load() {
        if (!isAttempted) {
            try {
                isLoaded = Privileged.call(new Supplier<Boolean>() {
                    @Override
                    public Boolean get() {
                        return loadOnce();
                    }
                });
            } finally {
                // Set last: concurrent callers wait for the outcome.
                isAttempted = true;
            }
        }
        return isLoaded;
    }

    private static boolean loadOnce() {
        try {
            loadFirstUsable();
            return true;
        } catch (SecurityException denied) {
            report(denied);
        } catch (IOException | RuntimeException | Error failure) {
            HostLog.warn("spanprof: this process is not profiled: " + failure.getMessage());
        }
        return false;
    }

    static void report(SecurityException denied) {
        HostLog.warn("spanprof: this process is not profiled: the security manager of this program denies a permission that "
                + "the profiler needs, " + denied.getMessage()
                + "; grant spanprof.jar java.security.AllPermission in its policy, or run without a security manager");
    }

    private static void loadFirstUsable() throws IOException {
        // At run time, since the tools that relocate classes also change such constants.
        String expected = String.join(".", "io", "spanprof", "NativeLibrary");
        if (!NativeLibrary.class.getName().equals(expected)) {
            throw new IOException("its classes were relocated, to " + NativeLibrary.class.getName()
                    + ", but native methods have fixed names; exclude " + expected.replace("NativeLibrary", "**")
                    + " from the relocation");
        }
        List<String> failures = new ArrayList<>();
        Path beside = besideJar();
        if (beside != null) {
            try {
                System.load(beside.toString());
                return;
            } catch (UnsatisfiedLinkError failure) {
                // For example, another application of this server has loaded this file: the VM allows one class loader per
                // file.
                failures.add(beside + ": " + failure.getMessage());
            }
        }
        boolean isInJar = isInJar();
        if (!isInJar && beside == null) {
            throw new IOException("the JAR has no library for " + platform());
        }
        boolean mayUseMemory = configuredDirectory() == null;
        for (Path directory : directories()) {
            try {
                loadFrom(directory, isInJar ? null : beside, mayUseMemory);
                return;
            } catch (IOException | UnsatisfiedLinkError failure) {
                failures.add(directory + ": " + failure.getMessage());
            }
        }
        throw new IOException("the library cannot be loaded (" + String.join("; ", failures) + "); set -D"
                + DIRECTORY_PROPERTY + " to a directory on a file system that is not mounted noexec");
    }

    /** Loads through a private file that is deleted after loading: a copy of {@code library}, or the library from the JAR. */
    private static void loadFrom(Path directory, Path library, boolean mayUseMemory) throws IOException {
        Path privateDirectory = createPrivateDirectory(directory);
        Path file = privateDirectory.resolve(FILE);
        try {
            if (library != null) {
                Files.copy(library, file);
            } else {
                loadOpener(privateDirectory);
                if (mayUseMemory && loadFromMemory(file)) {
                    return;
                }
                unpack(file);
            }
            System.load(file.toString());
        } finally {
            // A file that cannot be deleted, such as on a network file system, is not an error.
            file.toFile().delete();
            privateDirectory.toFile().delete();
        }
    }

    private static void loadOpener(Path privateDirectory) throws IOException {
        Path file = privateDirectory.resolve(OPENER);
        try {
            try (InputStream opener = openResource(OPENER); OutputStream out = new FileOutputStream(file.toFile())) {
                out.write(read(opener, Integer.MAX_VALUE));
            }
            System.load(file.toString());
        } finally {
            file.toFile().delete();
        }
    }

    /** Loads the library from an in-memory file. False if that is not allowed or not possible. */
    private static boolean loadFromMemory(Path link) {
        try (InputStream packed = openResource(PACKED)) {
            int descriptor = Opener.toMemory(packed);
            if (descriptor < 0) {
                return false;
            }
            // The VM and the dynamic linker identify libraries by path: this path is unique.
            Files.createSymbolicLink(link, Paths.get("/proc/self/fd/" + descriptor));
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
        try (InputStream packed = openResource(PACKED)) {
            Charset names = Charset.forName(System.getProperty("sun.jnu.encoding", "UTF-8"));
            byte[] failure = Opener.toFile(packed, file.toString().getBytes(names));
            if (failure != null) {
                throw new IOException(file + ": " + new String(failure, StandardCharsets.UTF_8));
            }
        }
    }

    /** Unpacks the library into a directory; returns its path. */
    static Path unpackInto(Path directory) throws IOException {
        if (!isInJar()) {
            throw new IOException("the JAR has no library for " + platform());
        }
        if (!Files.isDirectory(directory)) {
            Files.createDirectories(directory);
        }
        Path privateDirectory = createPrivateDirectory(directory);
        Path file = privateDirectory.resolve(FILE);
        try {
            loadOpener(privateDirectory);
            unpack(file);
            return Files.move(file, directory.resolve(FILE), StandardCopyOption.REPLACE_EXISTING);
        } finally {
            file.toFile().delete();
            privateDirectory.toFile().delete();
        }
    }

    private static boolean isInJar() throws IOException {
        try (InputStream opener = openResource(OPENER)) {
            return opener != null;
        }
    }

    /** The rest of a stream, up to {@code maxBytes}. */
    static byte[] read(InputStream in, int maxBytes) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        byte[] part = new byte[Math.min(maxBytes, 16 * 1024)];
        int count = 0;
        while (all.size() < maxBytes && count >= 0) {
            all.write(part, 0, count);
            count = in.read(part, 0, Math.min(part.length, maxBytes - all.size()));
        }
        return all.toByteArray();
    }

    /** The JAR's file of that name for this platform; null if there is none. */
    private static InputStream openResource(String name) throws IOException {
        return open("io/spanprof/native/" + platform() + "/" + name);
    }

    /** A file of the JAR; null if there is none. */
    static InputStream open(String name) throws IOException {
        Path jar = jar();
        if (jar != null && Files.isRegularFile(jar)) {
            // `getResourceAsStream` takes ten milliseconds here, since the JDK initializes its URL connections.
            JarFile files = new JarFile(jar.toFile());
            ZipEntry entry = files.getEntry(name);
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
        return NativeLibrary.class.getResourceAsStream("/" + name);
    }

    /**
     * Creates a directory accessible only to its owner. {@link Files#createTempDirectory} takes a third of a first start,
     * since the JDK's secure random numbers are slow to initialize. An existing directory is never used.
     */
    private static Path createPrivateDirectory(Path parent) throws IOException {
        FileAttribute<?> ownerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
        for (int attempt = 1;; attempt++) {
            Path privateDirectory = parent.resolve("spanprof-" + System.currentTimeMillis() + "-" + System.nanoTime());
            try {
                return Files.createDirectory(privateDirectory, ownerOnly);
            } catch (FileAlreadyExistsException taken) {
                if (attempt == ATTEMPTS) {
                    throw taken;
                }
            }
        }
    }

    /** The directory set by the property or its environment variable, or null. */
    private static String configuredDirectory() {
        return System.getProperty(DIRECTORY_PROPERTY, System.getenv("SPANPROF_LIBRARY_DIRECTORY"));
    }

    private static List<Path> directories() {
        List<Path> directories = new ArrayList<>();
        String pyroscopeDirectory = System.getProperty("pyroscope.tmp.dir", System.getenv("PYROSCOPE_TMP_DIR"));
        String configured = configuredDirectory();
        String preferred = configured != null ? configured : pyroscopeDirectory;
        if (preferred != null) {
            directories.add(Paths.get(preferred));
        }
        directories.add(Paths.get(System.getProperty("java.io.tmpdir", "/tmp")));
        // A file system in memory, for machines whose temporary directory is read-only or mounted noexec.
        directories.add(Paths.get("/dev/shm"));
        return directories;
    }

    /** The library beside the JAR; null if there is no readable one. OpenTelemetry's agent hides the files of its extensions. */
    private static Path besideJar() {
        Path jar = jar();
        if (jar != null) {
            return readable(jar.resolveSibling(FILE));
        }
        return besideExtension(System.getProperty("otel.javaagent.extensions", System.getenv("OTEL_JAVAAGENT_EXTENSIONS")));
    }

    /** The library beside one of the extensions, or in a directory of them, that OpenTelemetry's agent was given. */
    static Path besideExtension(String locations) {
        for (String location : locations == null ? new String[0] : locations.split(",")) {
            Path extension = Paths.get(location);
            Path beside = readable(Files.isDirectory(extension) ? extension.resolve(FILE) : extension.resolveSibling(FILE));
            if (beside != null) {
                return beside;
            }
        }
        return null;
    }

    private static Path readable(Path file) {
        return Files.isReadable(file) ? file.toAbsolutePath() : null;
    }

    /** The JAR, or the directory of the classes; null for other class sources. */
    private static Path jar() {
        try {
            return Paths.get(NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        } catch (SecurityException denied) {
            throw denied;
        } catch (Exception unknown) {
            return null;
        }
    }

    /** The name of this platform's directory in the JAR. */
    static String platform() {
        if (platform == null) {
            platform = readPlatform();
        }
        return platform;
    }

    private static String readPlatform() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String architecture = System.getProperty("os.arch");
        boolean isIntel = architecture.equals("amd64") || architecture.equals("x86_64");
        return system + "-" + (isIntel ? "x86_64" : architecture) + (system.equals("linux") && hasMusl() ? "-musl" : "");
    }

    /**
     * Whether the VM runs with musl: its loader is mapped, whatever other loaders the file system has. Debian's is a link to {@code libc.so};
     * the library of glibc is {@code libc.so.6}.
     */
    private static boolean hasMusl() {
        try (InputStream maps = new FileInputStream("/proc/self/maps")) {
            String files = new String(read(maps, Integer.MAX_VALUE), StandardCharsets.ISO_8859_1);
            return files.contains("/ld-musl-") || files.contains("/libc.so\n");
        } catch (IOException unreadable) {
            return false;
        }
    }
}
