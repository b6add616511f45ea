package io.spanprof;

import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLConnection;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.ServiceLoader;
import java.util.function.Consumer;

/** Called by the classes that {@link ProgramTransformer} has changed, and by nothing else. Nothing is thrown into the program. */
public final class ProgramHooks implements Consumer<Object> {
    private static final String PACKAGE = "io.spanprof.";
    private static final String SERVICES = "META-INF/services/";

    /** Created by reflection. */
    public ProgramHooks() {}

    /** An object or a class of the program was found, see {@link ProgramTransformer}. */
    @Override
    public void accept(Object found) {
        if (found.getClass().getName().startsWith("sun.net.httpserver.")) {
            WebServers.announced(found);
        } else {
            TracerProviders.announced(found);
        }
    }

    /** A servlet or its first filter begins to work for a request; the result is for {@link #end}. */
    public static Object begin(Object request, Object response) {
        return WebServers.begin(request, response);
    }

    /** The work of {@link #begin} ended, with an exception or null. */
    public static void end(Object scope, Throwable thrown) {
        WebServers.end(scope, thrown);
    }

    /** {@link ServiceLoader#load(Class)} without the services of this package. */
    public static <S> ServiceLoader<S> load(Class<S> service) {
        return load(service, Thread.currentThread().getContextClassLoader());
    }

    /**
     * {@link ServiceLoader#load(Class, ClassLoader)} without the services of this package: under {@code -javaagent} the loader of a
     * program finds them in the agent's JAR, whose loader does not see the interfaces that they implement. The error would be thrown into
     * the program.
     */
    public static <S> ServiceLoader<S> load(Class<S> service, ClassLoader loader) {
        return ServiceLoader.load(service, new ProgramServices(loader));
    }

    /** A loader whose files of services are those of the program. */
    private static final class ProgramServices extends ClassLoader {
        ProgramServices(ClassLoader program) {
            super(program == null ? ClassLoader.getSystemClassLoader() : program);
        }

        @Override
        public Enumeration<URL> getResources(String name) throws IOException {
            List<URL> urls = Collections.list(super.getResources(name));
            for (URL url : name.startsWith(SERVICES) ? new ArrayList<>(urls) : Collections.<URL>emptyList()) {
                URLConnection connection = url.openConnection();
                connection.setUseCaches(false);
                try (InputStream in = connection.getInputStream()) {
                    if (new String(NativeLibrary.read(in, PACKAGE.length()), StandardCharsets.UTF_8).equals(PACKAGE)) {
                        urls.remove(url);
                    }
                }
            }
            return Collections.enumeration(urls);
        }
    }
}
