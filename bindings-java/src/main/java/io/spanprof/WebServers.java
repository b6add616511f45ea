package io.spanprof;

import com.sun.net.httpserver.Filter;
import com.sun.net.httpserver.HttpContext;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.util.function.Consumer;

/**
 * The middlewares of programs that do not name them: called for each request of a servlet container or of the JDK's server that {@link
 * ProgramTransformer} recognized.
 */
final class WebServers {
    private static final String FILTER = "io.spanprof.servlet.ExchangeFilter";

    /** The method {@code begin} of the filter for a class of requests; null if the class is of no servlet API. */
    private static final ClassValue<MethodHandle> BEGIN = new ClassValue<MethodHandle>() {
        @Override
        protected MethodHandle computeValue(Class<?> request) {
            for (String name : new String[] {"SpanprofFilter", "JavaxSpanprofFilter"}) {
                try {
                    ClassLoader loader = new BridgeLoader(request.getClassLoader(), "");
                    Class<?> filter = Class.forName("io.spanprof.servlet." + name, true, loader);
                    Method begin = filter.getDeclaredMethod("begin", Object.class, Object.class);
                    begin.setAccessible(true);
                    return MethodHandles.lookup().unreflect(begin);
                } catch (ReflectiveOperationException | LinkageError otherApi) {
                    continue;
                }
            }
            return null;
        }
    };

    private WebServers() {}

    /** The work of {@link #end}; null if there is none. */
    static Object begin(Object request, Object response) {
        try {
            MethodHandle begin = Native.followsRequests() ? BEGIN.get(request.getClass()) : null;
            return begin == null ? null : begin.invoke(request, response);
        } catch (Throwable failure) {
            // Of the VM, such as a lack of memory: the request continues.
            return null;
        }
    }

    @SuppressWarnings("unchecked")
    static void end(Object scope, Throwable thrown) {
        try {
            if (scope != null) {
                ((Consumer<Throwable>) scope).accept(thrown);
            }
        } catch (RuntimeException | Error failure) {
            return;
        }
    }

    /** A context of the JDK's server, when the server asks for its filters. */
    static void announced(Object found) {
        try {
            HttpContext context = (HttpContext) found;
            // The second call is that of `getFilters` below.
            if (Native.followsRequests() && context.getAttributes().putIfAbsent(FILTER, true) == null) {
                Filter filter = (Filter) Class.forName(FILTER).getConstructor().newInstance();
                context.getFilters().add(0, filter);
            }
        } catch (ReflectiveOperationException | RuntimeException | Error failure) {
            return;
        }
    }
}
