package io.spanprof;

import io.spanprof.opentelemetry.ActiveSpan;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/** The value and the profile of captured work; see {@link Spanprof#capture}. */
public final class Capture<T> {
    private static final Set<OpenOption> REPLACE =
            Set.of(StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING);
    private static final FileAttribute<?> OWNER_ONLY =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

    private final T result;
    private final byte[] pprof;
    private final byte[] flamegraph;
    private final byte[] folded;

    /** {@code profile}: as {@link Native#endCapture} returns it, or null. */
    Capture(T result, byte[] profile) {
        this.result = result;
        ByteBuffer parts = ByteBuffer.wrap(profile == null ? new byte[3 * Integer.BYTES] : profile);
        pprof = next(parts);
        flamegraph = next(parts);
        folded = next(parts);
    }

    private static byte[] next(ByteBuffer parts) {
        byte[] part = new byte[parts.getInt()];
        parts.get(part);
        return part;
    }

    /** The value of the work. */
    public T result() {
        return result;
    }

    /** The profile as gzip-compressed pprof, with labels and span links; empty if no profiler runs. */
    public byte[] pprof() {
        return pprof.clone();
    }

    /** A flame graph: one self-contained HTML page. */
    public String flamegraph() {
        return new String(flamegraph, StandardCharsets.UTF_8);
    }

    /** The stacks as text: frames from the root, separated by {@code ;}, and the value. */
    public String folded() {
        return new String(folded, StandardCharsets.UTF_8);
    }

    /**
     * Writes a file; its extension selects the format: {@code .html}, {@code .folded}, else pprof. The active OpenTelemetry
     * span gets the attribute {@code profile.file}. Only the user of this process may read a new file (mode 0600).
     *
     * @throws IOException when the file cannot be written
     */
    public void save(Path path) throws IOException {
        String name = path.toString();
        byte[] content = name.endsWith(".html") ? flamegraph : name.endsWith(".folded") ? folded : pprof;
        boolean hasModes = path.getFileSystem().supportedFileAttributeViews().contains("posix");
        FileAttribute<?>[] attributes = hasModes ? new FileAttribute<?>[] {OWNER_ONLY} : new FileAttribute<?>[0];
        try (SeekableByteChannel file = Files.newByteChannel(path, REPLACE, attributes)) {
            for (ByteBuffer bytes = ByteBuffer.wrap(content); bytes.hasRemaining(); ) {
                file.write(bytes);
            }
        }
        try {
            ActiveSpan.setProfileFile(name);
        } catch (LinkageError absent) {
            // The program has no OpenTelemetry API.
        }
    }
}
