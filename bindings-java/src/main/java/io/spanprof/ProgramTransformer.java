package io.spanprof;

import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;

/**
 * Lets some classes of the program call {@link ProgramHooks}, while they are loaded: those that show which OpenTelemetry SDK the program
 * uses, and those through which web servers pass each request. Used under {@code -javaagent}, where no class loader of the program need
 * see the package.
 */
final class ProgramTransformer implements ClassFileTransformer {
    private static final String OPENTELEMETRY = "io/opentelemetry/";

    private ProgramTransformer() {}

    static void install(Instrumentation instrumentation) {
        String policy = System.getProperty("java.security.manager", "disallow");
        if (!policy.equals("disallow") && !policy.equals("allow")) {
            // The program's classes would need permissions for the calls.
            return;
        }
        // Read by the extension of OpenTelemetry's agent.
        System.setProperty("io.spanprof.transforms", "true");
        instrumentation.addTransformer(new ProgramTransformer());
    }

    /** Called for each class that the program loads. An exception would be ignored; the class stays as it is. */
    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] file) {
        try {
            return name == null || redefined != null ? null : transformed(loader, name, file);
        } catch (IOException | RuntimeException | LinkageError unknown) {
            return null;
        }
    }

    private static byte[] transformed(ClassLoader loader, String name, byte[] file) throws IOException {
        if (!name.startsWith(OPENTELEMETRY)) {
            return ofWebServer(loader, name, file);
        }
        if (name.equals(OPENTELEMETRY + "sdk/trace/SdkTracerProviderBuilder")) {
            return new ClassPatch(file).announced("build", OPENTELEMETRY + "sdk/trace/SdkTracerProvider");
        }
        if (name.endsWith(OPENTELEMETRY + "context/ContextStorageWrappers")) {
            return new ClassPatch(file).announced("getWrappers", "java/util/List");
        }
        boolean mayLoadServices = name.startsWith("context/", OPENTELEMETRY.length()) || name.startsWith("common/", OPENTELEMETRY.length())
                || name.startsWith("sdk/autoconfigure/", OPENTELEMETRY.length());
        return mayLoadServices && seesHooks(loader) ? new ClassPatch(file).redirected("java/util/ServiceLoader", "load") : null;
    }

    private static byte[] ofWebServer(ClassLoader loader, String name, byte[] file) throws IOException {
        switch (name) {
            case "sun/net/httpserver/HttpContextImpl":
                return new ClassPatch(file).announced("getFilters", "java/util/List");
            case "jakarta/servlet/http/HttpServlet":
                return enclosed(loader, file, "service", "jakarta");
            case "javax/servlet/http/HttpServlet":
                return enclosed(loader, file, "service", "javax");
            case "org/apache/catalina/core/ApplicationFilterChain":
            case "io/undertow/servlet/handlers/FilterHandler$FilterChainImpl":
                // Outside of the filters, which can take long.
                byte[] jakarta = enclosed(loader, file, "doFilter", "jakarta");
                return jakarta == null ? enclosed(loader, file, "doFilter", "javax") : jakarta;
            default:
                return null;
        }
    }

    private static byte[] enclosed(ClassLoader loader, byte[] file, String method, String api) throws IOException {
        String servlet = api + "/servlet/Servlet";
        return seesHooks(loader) ? new ClassPatch(file).enclosed(method, servlet + "Request", servlet + "Response") : null;
    }

    /** Whether classes of a loader can call {@link ProgramHooks}. */
    private static boolean seesHooks(ClassLoader loader) {
        try {
            return loader != null && loader.loadClass(ProgramHooks.class.getName()) == ProgramHooks.class;
        } catch (ClassNotFoundException absent) {
            return false;
        }
    }
}
