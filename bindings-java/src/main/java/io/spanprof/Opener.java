package io.spanprof;

import java.io.IOException;
import java.io.InputStream;

/** The native methods of the small library that unpacks the large one; {@link NativeLibrary} loads both. */
final class Opener {
    private Opener() {}

    /** Unpacks into memory: the number under which {@code /proc/self/fd} has it until {@link #close}; -1 where it cannot be. */
    static native int toMemory(InputStream packed) throws IOException;

    static native void close();

    /** Unpacks into a new file. Why it cannot be; null when it is there. */
    static native byte[] toFile(InputStream packed, byte[] path) throws IOException;
}
