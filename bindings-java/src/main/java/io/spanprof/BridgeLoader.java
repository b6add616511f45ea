package io.spanprof;

import java.io.IOException;
import java.io.InputStream;

/**
 * Loads the classes that implement interfaces of a library of the program, such as OpenTelemetry's SDK: as a child of the library's
 * loader, which the profiler's own does not see when it is an agent. All other classes of the package stay those of the agent.
 */
final class BridgeLoader extends ClassLoader {
    private static final String PACKAGE = "io.spanprof.";
    private static final String OPENTELEMETRY = "io/opentelemetry/";

    private final String prefix;

    /**
     * @param library the library's loader
     * @param prefix before the names of OpenTelemetry's API where it is relocated, as in its agent; empty elsewhere
     */
    BridgeLoader(ClassLoader library, String prefix) {
        super(library);
        this.prefix = prefix.replace('.', '/');
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
        if (!name.startsWith(PACKAGE)) {
            return super.loadClass(name, resolve);
        }
        boolean isBridge = name.startsWith(PACKAGE + "opentelemetry.") || name.startsWith(PACKAGE + "servlet.");
        if (!isBridge) {
            return Class.forName(name, false, BridgeLoader.class.getClassLoader());
        }
        synchronized (getClassLoadingLock(name)) {
            Class<?> loaded = findLoadedClass(name);
            return loaded != null ? loaded : define(name);
        }
    }

    private Class<?> define(String name) throws ClassNotFoundException {
        try (InputStream in = NativeLibrary.open(name.replace('.', '/') + ".class")) {
            if (in == null) {
                throw new ClassNotFoundException(name);
            }
            byte[] file = NativeLibrary.read(in, Integer.MAX_VALUE);
            if (!prefix.isEmpty()) {
                file = new ClassPatch(file).renamed(this::relocated);
            }
            return defineClass(name, file, 0, file.length, BridgeLoader.class.getProtectionDomain());
        } catch (IOException unreadable) {
            throw new ClassNotFoundException(name, unreadable);
        }
    }

    /** The API and its context are relocated, the SDK is not. */
    private String relocated(String text) {
        return text.replace(OPENTELEMETRY + "api/", prefix + OPENTELEMETRY + "api/")
                .replace(OPENTELEMETRY + "context/", prefix + OPENTELEMETRY + "context/");
    }
}
