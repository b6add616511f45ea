package io.spanprof;

import java.io.IOException;
import java.nio.file.Paths;

/**
 * {@code java -cp spanprof.jar io.spanprof.Unpack DIRECTORY} unpacks the library into a directory. It is used for {@code
 * -agentpath:}, or beside the JAR if no file can be written at run time.
 */
final class Unpack {
    private static final String USAGE =
            "Usage: java -cp spanprof.jar io.spanprof.Unpack DIRECTORY\n\nWrites " + NativeLibrary.FILE + " into DIRECTORY.";

    private Unpack() {}

    public static void main(String[] arguments) {
        if (arguments.length != 1 || arguments[0].startsWith("-")) {
            System.err.println(USAGE);
            System.exit(2);
        }
        try {
            System.out.println(NativeLibrary.unpackInto(Paths.get(arguments[0]).toAbsolutePath()));
        } catch (IOException | RuntimeException | UnsatisfiedLinkError failure) {
            System.err.println("spanprof: the library cannot be unpacked into " + arguments[0] + ": " + failure);
            System.exit(1);
        }
    }
}
