import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** What the programs of this folder share: where their profiles go, their clocks, how they fail. */
final class Suite {
    /** Found once: finding it is work. */
    private static final ThreadMXBean CLOCKS = ManagementFactory.getThreadMXBean();

    private Suite() {}

    /** A folder that is gone when the process ends. */
    static Path folder() throws IOException {
        Path made = Files.createTempDirectory("spanprof-live-");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> remove(made)));
        return made;
    }

    private static void remove(Path folder) {
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        } catch (IOException | RuntimeException busy) {
            System.err.println("left behind: " + folder);
        }
    }

    /** Settings into files of a folder. */
    static SpanprofConfig.Builder into(Path directory) {
        return SpanprofConfig.builder().serviceName("live").set("uploadInterval", 5)
                .destinations(List.of(Map.of("type", "file", "directory", directory.toString(), "keep", 10_000)));
    }

    /** Ends the program with a reason. */
    static void fail(String message) {
        System.err.println(message);
        Runtime.getRuntime().halt(1);
    }

    static long threadCpuNs() {
        return CLOCKS.getCurrentThreadCpuTime();
    }

    /** A program of this class path in a VM like this one. */
    static ProcessBuilder program(String... words) {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-cp", System.getProperty("java.class.path")));
        command.addAll(List.of(words));
        return new ProcessBuilder(command);
    }

    static String java() {
        return "Java " + Runtime.version().feature() + " with " + ManagementFactory.getGarbageCollectorMXBeans().get(0).getName();
    }

    /** Counters of {@code stats()} that begin with a word and are not zero. */
    static Map<String, Object> counters(Map<String, Object> stats, String prefix) {
        Map<String, Object> counters = new java.util.TreeMap<>();
        stats.forEach((name, value) -> {
            if (name.startsWith(prefix) && !value.equals(0L)) {
                counters.put(name, value);
            }
        });
        return counters;
    }
}
