import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.WeakReference;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

/**
 * Two applications in one Tomcat, each with its own class loader and copy of the JAR in WEB-INF. One is undeployed while the other
 * continues. Prints the responses, and whether the class loader was collected.
 *
 * <pre>TomcatServer CLASSES JAR DIRECTORY</pre>
 */
final class TomcatServer {
    private static final int REQUESTS = 15;
    private static final long UNLOAD_LIMIT_NANOS = 60_000_000_000L;

    private final Tomcat tomcat = new Tomcat();

    private TomcatServer() {}

    public static void main(String[] words) throws Exception {
        Path directory = Path.of(words[2]);
        TomcatServer server = new TomcatServer();
        server.tomcat.setBaseDir(directory.toString());
        server.tomcat.setPort(0);
        // Without the JSP servlet, which needs another library.
        server.tomcat.setAddDefaultWebXmlToWebapp(false);
        Context shop = server.add("/shop", directory, Path.of(words[0]), Path.of(words[1]));
        Context news = server.add("/news", directory, Path.of(words[0]), Path.of(words[1]));
        server.tomcat.getConnector();
        server.tomcat.start();
        server.request("/shop/early/");
        server.request("/news/early/");
        server.remove(shop);
        server.request("/news/late/");
        server.remove(news);
        server.tomcat.stop();
        server.tomcat.destroy();
    }

    private Context add(String name, Path directory, Path classes, Path jar) throws IOException {
        Path base = Files.createDirectories(directory.resolve("webapps" + name));
        Path inside = Files.createDirectories(base.resolve("WEB-INF/classes"));
        for (String file : new String[] {"Site", "Site$Pages", "Profiled", "Work"}) {
            Files.copy(classes.resolve(file + ".class"), inside.resolve(file + ".class"));
        }
        Files.copy(jar, Files.createDirectories(base.resolve("WEB-INF/lib")).resolve("spanprof.jar"));
        return tomcat.addWebapp(name, base.toString());
    }

    private void request(String path) throws IOException {
        for (int number = 0; number < REQUESTS; number++) {
            URI place = URI.create("http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + path + number);
            try (InputStream answer = place.toURL().openStream()) {
                System.out.println(new String(answer.readAllBytes(), StandardCharsets.UTF_8));
            }
        }
    }

    /** Undeploys an application, and waits until its classes are unreachable. */
    private void remove(Context context) throws InterruptedException {
        String name = context.getPath();
        WeakReference<ClassLoader> loader = new WeakReference<>(context.getLoader().getClassLoader());
        tomcat.getHost().removeChild(context);
        context = null;
        long end = System.nanoTime() + UNLOAD_LIMIT_NANOS;
        while (loader.get() != null && System.nanoTime() < end) {
            System.gc();
            Thread.sleep(50);
        }
        System.out.println(name + (loader.get() == null ? " went with its classes" : " left its classes behind"));
    }
}
