package io.spanprof;

import java.lang.instrument.Instrumentation;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/**
 * Finds OpenTelemetry in the program and registers the span processor: in builders of tracer providers that {@link ProgramTransformer}
 * announces, in a provider that was built before the agent, and in the global one that the first spans without a processor belong to.
 * OpenTelemetry's classes may be of any loader, and relocated: {@code prefix} is before their names.
 */
final class TracerProviders {
    private static final String GLOBAL = "io.opentelemetry.api.GlobalOpenTelemetry";
    private static final String STORAGE = "io.opentelemetry.context.LazyStorage";
    private static final String WRAPPERS = "io.opentelemetry.context.ContextStorageWrappers";
    private static final String TRACER_PROVIDER = "io.opentelemetry.api.trace.TracerProvider";
    private static final String SPAN = "io.opentelemetry.sdk.trace.SdkSpan";
    private static final String PROCESSOR = "SpanprofSpanProcessor";
    /** Activations of spans without a processor, after which the search ends. */
    private static final int MAX_SEARCHES = 100;
    /** Not exact: a race between threads searches once more. */
    private static int searches;

    private TracerProviders() {}

    /** A builder of a tracer provider, before it builds; or the class that OpenTelemetry asks for wrappers of its storage. */
    static void announced(Object found) {
        try {
            if (found instanceof Class) {
                Class<?> wrappers = (Class<?>) found;
                bridge(wrappers, prefix(wrappers.getName(), WRAPPERS), "LinkingStorage", "wrapLater", null, null);
            } else {
                Class<?> type = found.getClass();
                String api = type.getMethod("build").getReturnType().getInterfaces()[0].getName();
                bridge(type, prefix(api, TRACER_PROVIDER), PROCESSOR, "register", type, found);
            }
        } catch (ReflectiveOperationException | RuntimeException | Error failure) {
            warn(failure);
        }
    }

    /** What another agent has created before this one. */
    static void searchLoaded(Instrumentation instrumentation) {
        for (Class<?> loaded : instrumentation.getAllLoadedClasses()) {
            String name = loaded.getName();
            try {
                if (name.endsWith(STORAGE)) {
                    linkExisting(loaded, prefix(name, STORAGE));
                } else if (name.endsWith(GLOBAL)) {
                    extendGlobal(loaded);
                }
            } catch (ReflectiveOperationException | RuntimeException | Error failure) {
                warn(failure);
            }
        }
    }

    /** A span became active while no processor has reported the begin of one. */
    static void search(Class<?> span) {
        if (searches >= MAX_SEARCHES || !span.getName().equals(SPAN) || !Native.followsRequests()) {
            return;
        }
        searches++;
        try {
            Class<?> global = Class.forName(GLOBAL, false, span.getClassLoader());
            if (extendGlobal(global)) {
                searches = MAX_SEARCHES;
            } else if (searches == MAX_SEARCHES) {
                warn("the tracer provider is not that of GlobalOpenTelemetry");
            }
        } catch (ReflectiveOperationException | RuntimeException | Error failure) {
            searches = MAX_SEARCHES;
            warn(failure);
        }
    }

    private static void warn(Throwable failure) {
        warn(String.valueOf(failure instanceof InvocationTargetException ? failure.getCause() : failure));
    }

    private static void warn(String reason) {
        HostLog.warn("spanprof: the requests of this process are not reported by its OpenTelemetry spans: " + reason
                + "; add the processor with SdkTracerProvider.builder().addSpanProcessor(new SpanprofSpanProcessor()), or"
                + " start the profiler with -javaagent before other agents");
    }

    private static String prefix(String name, String original) {
        return name.substring(0, Math.max(name.length() - original.length(), 0));
    }

    private static void linkExisting(Class<?> storage, String prefix) throws ReflectiveOperationException {
        Field field = storage.getDeclaredField("storage");
        field.setAccessible(true);
        Object existing = field.get(null);
        Class<?> type = Class.forName(prefix + "io.opentelemetry.context.ContextStorage", false, storage.getClassLoader());
        // Reflection does not write static final fields.
        Native.setStatic(storage, field, bridge(storage, prefix, "LinkingStorage", "wrap", type, existing));
    }

    /** False while there is no global SDK. Does not call {@code get()}, which would set one. */
    private static boolean extendGlobal(Class<?> global) throws ReflectiveOperationException {
        Object sdk = value(global, null, "globalOpenTelemetry");
        for (Object inner = sdk; inner != null; inner = value(inner.getClass(), inner, "delegate")) {
            sdk = inner;
        }
        Method getter = sdk == null ? null : method(sdk.getClass(), "getSdkTracerProvider");
        if (getter == null) {
            return false;
        }
        Object provider = getter.invoke(sdk);
        bridge(provider.getClass(), prefix(global.getName(), GLOBAL), PROCESSOR, "extend", provider.getClass(), provider);
        return true;
    }

    private static Method method(Class<?> type, String name) {
        try {
            return type.getMethod(name);
        } catch (NoSuchMethodException other) {
            return null;
        }
    }

    /** The value of a private field; null if the class has no such field. */
    private static Object value(Class<?> type, Object holder, String name) throws IllegalAccessException {
        try {
            Field field = type.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(holder);
        } catch (NoSuchFieldException none) {
            return null;
        }
    }

    /** Calls a static method of a class of this package that is loaded beside a class of OpenTelemetry. */
    private static Object bridge(Class<?> neighbor, String prefix, String name, String method, Class<?> parameter, Object argument)
            throws ReflectiveOperationException {
        ClassLoader library = neighbor.getClassLoader();
        boolean isVisible = library == TracerProviders.class.getClassLoader();
        ClassLoader loader = isVisible ? library : new BridgeLoader(library, prefix);
        Class<?> type = Class.forName("io.spanprof.opentelemetry." + name, true, loader);
        Method called = parameter == null ? type.getDeclaredMethod(method) : type.getDeclaredMethod(method, parameter);
        called.setAccessible(true);
        return parameter == null ? called.invoke(null) : called.invoke(null, argument);
    }
}
