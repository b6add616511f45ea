package io.spanprof;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Set;

/** The value and the profile of captured work; see {@link Spanprof#capture}. */
public final class Capture<T> {
    private static final Set<StandardOpenOption> REPLACE =
            EnumSet.of(StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING);
    private static final FileAttribute<?> OWNER_ONLY =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

    private static final int PPROF = 0;
    private static final int FLAME_GRAPH = 1;
    private static final int FOLDED = 2;

    private final T result;
    /** Number of the profile in native memory; 0 without one. */
    private final int number;

    Capture(T result, int number) {
        this.result = result;
        this.number = number;
        if (number != 0) {
            CapturedMemory.freeWith(this, number);
        }
    }

    /** A lock keeps the object reachable (JLS 12.6.1). Java 8 has no {@code Reference.reachabilityFence}. */
    private synchronized void keepReachable() {}

    private byte[] profile(int format) {
        try {
            byte[] profile = number == 0 ? null : Native.captured(number, format);
            return profile == null ? new byte[0] : profile;
        } finally {
            keepReachable();
        }
    }

    /** The value of the work. */
    public T result() {
        return result;
    }

    /** The profile as gzip-compressed pprof, with labels and span links; empty if no profiler runs. */
    public byte[] pprof() {
        return profile(PPROF);
    }

    /** A flame graph: one self-contained HTML page. */
    public String flamegraph() {
        return new String(profile(FLAME_GRAPH), StandardCharsets.UTF_8);
    }

    /** The stacks as text: frames from the root, separated by {@code ;}, and the value. */
    public String folded() {
        return new String(profile(FOLDED), StandardCharsets.UTF_8);
    }

    /**
     * Writes a file; its extension selects the format: {@code .html}, {@code .folded}, else pprof. The active OpenTelemetry
     * span gets the attributes {@code profile.file} and {@code profile.type}. Only the user of this process may read a new file (mode 0600).
     *
     * @throws IOException when the file cannot be written
     */
    public void save(Path path) throws IOException {
        String name = path.toString();
        byte[] content = profile(name.endsWith(".html") ? FLAME_GRAPH : name.endsWith(".folded") ? FOLDED : PPROF);
        boolean hasModes = path.getFileSystem().supportedFileAttributeViews().contains("posix");
        FileAttribute<?>[] attributes = hasModes ? new FileAttribute<?>[] {OWNER_ONLY} : new FileAttribute<?>[0];
        try (SeekableByteChannel file = Files.newByteChannel(path, REPLACE, attributes)) {
            for (ByteBuffer bytes = ByteBuffer.wrap(content); bytes.hasRemaining(); ) {
                file.write(bytes);
            }
        } catch (SecurityException denied) {
            throw new IOException(denied);
        }
        try {
            ActiveSpan.setProfileFile(name);
        } catch (LinkageError absent) {
            // The program has no OpenTelemetry API.
        }
    }

    /** As {@link #send(Duration)}, with {@code stopTimeout}. */
    public boolean send() {
        return sendWithin(-1);
    }

    /**
     * Sends the profile to the destinations of the running profiler, as types that begin with {@code capture_}. True if it
     * was delivered in time. Later it is still sent, or counted as lost.
     */
    public boolean send(Duration timeout) {
        boolean isMissing = InvalidArgument.isNull(timeout, "send()", "stopTimeout applies");
        return sendWithin(isMissing ? -1 : Nanoseconds.of(timeout));
    }

    private boolean sendWithin(long nanos) {
        try {
            return number != 0 && Native.sendCapture(number, nanos);
        } finally {
            keepReachable();
        }
    }
}
