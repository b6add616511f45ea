package io.spanprof;

import java.io.IOException;
import java.nio.file.Path;

/**
 * {@code java -cp spanprof.jar io.spanprof.Unpack DIRECTORY}: puts the library into a directory, for {@code -agentpath:}, or
 * to lie beside the JAR where no file may be written later.
 */
final class Unpack {
    private static final String USAGE =
            "usage: java -cp spanprof.jar io.spanprof.Unpack DIRECTORY\n\nWrites " + NativeLibrary.FILE + " into DIRECTORY.";

    private Unpack() {}

    public static void main(String[] words) {
        if (words.length != 1 || words[0].startsWith("-")) {
            System.err.println(USAGE);
            System.exit(2);
        }
        try {
            System.out.println(NativeLibrary.unpackInto(Path.of(words[0]).toAbsolutePath()));
        } catch (IOException | RuntimeException | UnsatisfiedLinkError failure) {
            System.err.println("spanprof: the library cannot be put into " + words[0] + ": " + failure);
            System.exit(1);
        }
    }
}
