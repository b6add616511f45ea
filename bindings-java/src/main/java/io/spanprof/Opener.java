package io.spanprof;

import java.io.IOException;
import java.io.InputStream;

/** The native methods of the opener library; {@link NativeLibrary} loads both libraries. */
final class Opener {
    private Opener() {}

    /** Unpacks into an in-memory file. Its descriptor, open until {@link #close}; -1 if that is not possible. */
    static native int toMemory(InputStream packed) throws IOException;

    static native void close();

    /** Unpacks into a new file. Null on success, else the reason. */
    static native byte[] toFile(InputStream packed, byte[] path) throws IOException;
}
