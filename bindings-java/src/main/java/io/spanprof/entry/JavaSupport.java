package io.spanprof.entry;

/**
 * Checks the Java version, and logs one line if it is not supported. Compiled for Java 8, like every entry point: an agent
 * or provider with class files of a later Java aborts an older VM and the program with it. For the package's entry points only.
 */
public final class JavaSupport {
    /** Java version that the other classes are compiled for. */
    private static final int OLDEST = 11;
    /** Set once the line is written: several entry points, of several class loaders, may decline for the same reason. */
    private static final String DECLINED_PROPERTY = "io.spanprof.declined";

    private JavaSupport() {}

    /** False if the Java version is too old, after one line on standard error per process. Throws nothing. */
    public static boolean isSupported() {
        try {
            String version = System.getProperty("java.specification.version", "");
            if (feature(version) >= OLDEST) {
                return true;
            }
            decline("it runs on Java " + version + ", and spanprof needs Java " + OLDEST
                    + " or later; start it with a later Java, or leave spanprof out");
        } catch (Throwable failure) {
            decline("the Java version cannot be determined: " + failure);
        }
        return false;
    }

    /**
     * Writes once per process why it is not profiled. Uses standard error, since loggers of this Java may not be
     * initialized before the program configures them.
     */
    public static void decline(String reason) {
        try {
            if (System.getProperty(DECLINED_PROPERTY) != null) {
                return;
            }
            System.setProperty(DECLINED_PROPERTY, "true");
        } catch (RuntimeException denied) {
            // A repeated line is better than none.
        }
        System.err.println("spanprof: this process is not profiled: " + reason);
    }

    /** {@code 1.8} is 8, {@code 11} is 11; 0 for anything else. */
    static int feature(String version) {
        String number = version.startsWith("1.") ? version.substring(2) : version;
        try {
            return Integer.parseInt(number);
        } catch (NumberFormatException unknown) {
            return 0;
        }
    }
}
