package io.spanprof;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * API that the JDK got after Java 8, and its replacement in Java 8. A VM resolves a name when an instruction with it runs first, so Java 8
 * loads this class too. It is compiled against the JDK that builds the package, as {@link CreationStack} and {@link JdkLogger}; all other
 * classes against the API of Java 8. Not a multi-release JAR: class loaders of agents and tools that repack JARs ignore its parts.
 */
final class LaterApi {
    /** Whether the API is there: Java 10 or later. Java 9 counts as 8. */
    static final boolean EXISTS = feature() > 8;

    private LaterApi() {}

    /** The feature version of Java, by a method that needs no permission; 8 for Java 8 and 9. */
    static int feature() {
        try {
            return Runtime.version().feature();
        } catch (LinkageError java8or9) {
            return 8;
        }
    }

    /** See {@link StoreFence}; where the API exists. */
    static void storeStoreFence() {
        VarHandle.storeStoreFence();
    }

    /** The number in eight bytes, the first of which is the lowest. */
    static long littleEndianLong(byte[] bytes, int from) {
        if (EXISTS) {
            return (long) LongsInBytes.HANDLE.get(bytes, from);
        }
        long value = 0;
        for (int i = from + 7; i >= from; i--) {
            value = value << 8 | bytes[i] & 0xff;
        }
        return value;
    }

    /** A daemon thread without a context class loader. Except in Java 8, it inherits no thread-local values of its creator. */
    static Thread newThread(String name, Runnable work) {
        long stackBytes = 256 * 1024;
        Thread thread = EXISTS ? new Thread(null, work, name, stackBytes, false) : new Thread(null, work, name, stackBytes);
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        return thread;
    }

    static boolean isInNamedModule(Class<?> type) {
        return EXISTS && type.getModule().isNamed();
    }

    private static final class LongsInBytes {
        static final VarHandle HANDLE = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

        private LongsInBytes() {}
    }
}
