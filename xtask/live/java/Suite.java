import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;

/** Shared by the programs of this directory: profile directory, failure. */
final class Suite {
    private Suite() {}

    /** A directory that is deleted at exit. */
    static Path folder() throws IOException {
        Path made = Files.createTempDirectory("spanprof-live-");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> remove(made)));
        return made;
    }

    private static void remove(Path folder) {
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : (Iterable<Path>) files.sorted(Comparator.reverseOrder())::iterator) {
                Files.deleteIfExists(file);
            }
        } catch (IOException | RuntimeException busy) {
            System.err.println("left behind: " + folder);
        }
    }

    /** Settings with files in a directory as destination. */
    static SpanprofConfig.Builder into(Path directory) {
        Map<String, Object> destination = new TreeMap<>();
        destination.put("type", "file");
        destination.put("directory", directory.toString());
        destination.put("keep", 10_000);
        return SpanprofConfig.builder().serviceName("live").set("uploadInterval", 5)
                .destinations(Collections.singletonList(destination));
    }

    /** Exits with an error message. */
    static void fail(String message) {
        System.err.println(message);
        Runtime.getRuntime().halt(1);
    }

    /** A process with this class path and the same Java. */
    static ProcessBuilder program(String... words) {
        List<String> command = new ArrayList<>();
        command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(Arrays.asList("-cp", System.getProperty("java.class.path")));
        command.addAll(Arrays.asList(words));
        return new ProcessBuilder(command);
    }

    /** The feature version of this Java. */
    static int version() {
        return Integer.parseInt(System.getProperty("java.specification.version").replaceFirst("^1\\.", ""));
    }

    static String java() {
        return "Java " + version() + " with " + ManagementFactory.getGarbageCollectorMXBeans().get(0).getName();
    }
}
