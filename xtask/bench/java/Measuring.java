import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Executors;

/**
 * Shared by the benchmarks: arguments, child processes and their output, intervals, tables, a receiver that accepts everything. Runs
 * in the process that measures nothing itself.
 */
final class Measuring implements AutoCloseable {
    /** A JDK by its major version. */
    record Java(String name, String home) {
        boolean isAtLeast(int version) {
            return Integer.parseInt(name) >= version;
        }
    }

    /** Output of a child: its lines of a name and values. */
    record Said(Map<String, List<String>> lines) {
        List<Double> all(String name) {
            return lines.getOrDefault(name, List.of()).stream().map(Double::valueOf).toList();
        }

        double number(String name) {
            return all(name).get(0);
        }

        String text(String name) {
            return String.join(" ", lines.getOrDefault(name, List.of("–")));
        }
    }

    private static final Random RANDOM = new Random();

    final boolean isShort;
    final List<Java> javas = new ArrayList<>();
    final String address;
    private final Map<String, String> given = new LinkedHashMap<>();
    private final HttpServer receiver;
    private final Path logging;

    /** {@code [--short] --classes DIR --folder DIR --jars NAME=JAR… VERSION=HOME…} */
    Measuring(String[] words) throws IOException {
        boolean hasShort = false;
        for (int i = 0; i < words.length; i++) {
            if (words[i].equals("--short")) {
                hasShort = true;
            } else if (words[i].startsWith("--")) {
                given.put(words[i].substring(2), words[++i]);
            } else {
                String[] parts = words[i].split("=", 2);
                javas.add(new Java(parts[0], parts[1]));
            }
        }
        isShort = hasShort;
        logging = folder().resolve("logging.properties");
        Files.writeString(logging, "handlers=java.util.logging.ConsoleHandler\n.level=WARNING\n");
        receiver = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        receiver.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, -1);
            exchange.close();
        });
        receiver.setExecutor(Executors.newSingleThreadExecutor());
        receiver.start();
        address = "http://127.0.0.1:" + receiver.getAddress().getPort();
    }

    /** A part of a benchmark, on one Java. */
    interface Part {
        void run(Measuring bench, Java java) throws Exception;
    }

    /** Runs a benchmark's parts on each Java, each with its own heading. */
    static void onEachJava(String[] words, Part... parts) throws Exception {
        try (Measuring bench = new Measuring(words)) {
            for (Java java : bench.javas) {
                System.out.println("### Java " + java.name() + "\n");
                for (Part part : parts) {
                    part.run(bench, java);
                }
            }
        }
    }

    @Override
    public void close() {
        receiver.stop(0);
        ((java.util.concurrent.ExecutorService) receiver.getExecutor()).shutdownNow();
    }

    Path folder() {
        return Path.of(given.get("folder"));
    }

    /** Runs a program of the benchmarks with the JAR of one profiler alone; returns its output. */
    Said child(Java java, String profiler, String program, Object... words) throws IOException, InterruptedException {
        return child(List.of(), java, profiler, program, words);
    }

    /** As {@link #child}, on one processor. */
    Said childOn(int processor, Java java, String profiler, String program, Object... words)
            throws IOException, InterruptedException {
        return child(List.of("taskset", "--cpu-list", String.valueOf(processor)), java, profiler, program, words);
    }

    private Said child(List<String> prefix, Java java, String profiler, String program, Object... words)
            throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(prefix);
        command.add(java.home + "/bin/java");
        // The VM's own work should be equal in each run.
        command.addAll(List.of("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:-UseDynamicNumberOfCompilerThreads"));
        command.add("-Djava.util.logging.config.file=" + logging);
        if (java.isAtLeast(22)) {
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        String jar = given.get(profiler.split("-with-")[0]);
        command.addAll(List.of("-cp", given.get("classes") + (jar == null ? "" : ":" + jar), program, profiler));
        for (Object word : words) {
            command.add(String.valueOf(word));
        }
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        int code = process.waitFor();
        if (code != 0) {
            throw new IOException(String.join(" ", command) + " ended with " + code + ": " + output);
        }
        Map<String, List<String>> lines = new LinkedHashMap<>();
        output.lines().filter(line -> line.startsWith("= ")).map(line -> List.of(line.substring(2).split(" ")))
                .forEach(line -> lines.put(line.get(0), line.subList(1, line.size())));
        return new Said(lines);
    }

    /** The same items in random order, so none always follows another. */
    static <T> List<T> shuffled(List<T> things) {
        List<T> all = new ArrayList<>(things);
        Collections.shuffle(all, RANDOM);
        return all;
    }

    static double median(List<Double> values) {
        double[] ordered = ordered(values);
        int middle = ordered.length / 2;
        return ordered.length % 2 == 1 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
    }

    /** Median, and the bounds of its 95 % interval by order statistics (no shape of the noise is assumed). */
    static double[] interval(List<Double> values) {
        double[] ordered = ordered(values);
        double reach = 1.96 * Math.sqrt(ordered.length) / 2;
        int low = Math.max(0, (int) Math.floor(ordered.length / 2.0 - reach));
        int high = Math.min(ordered.length - 1, (int) Math.ceil(ordered.length / 2.0 + reach) - 1);
        return new double[] {median(values), ordered[low], ordered[Math.max(low, high)]};
    }

    private static double[] ordered(List<Double> values) {
        double[] ordered = values.stream().mapToDouble(Double::doubleValue).toArray();
        Arrays.sort(ordered);
        return ordered;
    }

    static String format(String format, Object... values) {
        return String.format(Locale.ROOT, format, values);
    }

    /** {@code 1.02 (0.99 … 1.04)} */
    static String inWords(String format, List<Double> values) {
        double[] all = interval(values);
        return format(format, all[0]) + " (" + format(format, all[1]) + " … " + format(format, all[2]) + ")";
    }

    /** Prints a Markdown table. */
    static void table(List<String> head, List<? extends List<?>> rows) {
        List<List<?>> all = new ArrayList<>(List.of(head, Collections.nCopies(head.size(), "---")));
        all.addAll(rows);
        for (List<?> cells : all) {
            StringBuilder line = new StringBuilder("|");
            cells.forEach(cell -> line.append(' ').append(cell).append(" |"));
            System.out.println(line);
        }
        System.out.println();
    }
}
