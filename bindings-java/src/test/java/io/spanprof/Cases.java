package io.spanprof;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.yaml.snakeyaml.Yaml;

/**
 * Runs the cases of the conformance suite through this package's API. A separate program: cases set the limits of the
 * process's tables.
 */
public final class Cases {
    /** Keys whose maps have names chosen by the user. */
    private static final Set<String> USER_MAPS = Set.of("tags", "resource_attributes", "headers");

    /** Called by the library while a case runs. */
    private static final class Runner {
        /** The thread's context inside scopes, outermost first: each is its number of labels, then keys and values. */
        long[] inside(byte[] scopes) {
            return inside(Packed.unpack(scopes), 0);
        }

        private long[] inside(List<String> flat, int at) {
            if (at == flat.size()) {
                return Scope.currentWords();
            }
            int end = at + 1 + 2 * Integer.parseInt(flat.get(at));
            Map<String, String> labels = new LinkedHashMap<>();
            for (int i = at + 1; i < end; i += 2) {
                labels.put(flat.get(i), flat.get(i + 1));
            }
            return Spanprof.tagWrapper(labels, () -> inside(flat, end));
        }
    }

    private Cases() {}

    /** The case's name, or an empty string and the failure. */
    private static native byte[] runCase(byte[] text, byte[] config, Runner runner);

    static List<String> run(String text) {
        Map<String, Object> written = new Yaml().load(text);
        SpanprofConfig config = SpanprofConfig.of(options((Map<?, ?>) written.getOrDefault("config", Map.of())));
        byte[] json = config.toJson().getBytes(StandardCharsets.UTF_8);
        return Packed.unpack(runCase(text.getBytes(StandardCharsets.UTF_8), json, new Runner()));
    }

    /** A case's configuration with this package's key names. */
    private static Map<String, Object> options(Map<?, ?> written) {
        Map<String, Object> options = new LinkedHashMap<>();
        written.forEach((key, value) -> {
            String name = String.valueOf(key);
            options.put(camelCase(name), USER_MAPS.contains(name) ? value : option(value));
        });
        return options;
    }

    private static Object option(Object value) {
        if (value instanceof Map<?, ?> map) {
            return options(map);
        }
        return value instanceof List<?> list ? list.stream().map(Cases::option).toList() : value;
    }

    static String camelCase(String name) {
        String[] words = name.split("_");
        StringBuilder camel = new StringBuilder(words[0]);
        for (int i = 1; i < words.length; i++) {
            camel.append(Character.toUpperCase(words[i].charAt(0))).append(words[i].substring(1));
        }
        return camel.toString();
    }

    static List<Path> in(Path folder) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.filter(file -> file.toString().endsWith(".yaml")).sorted().collect(Collectors.toList());
        }
    }

    /** One tab-separated line for each case in a folder: {@code case}, its file name, its result. */
    public static void main(String[] args) throws IOException {
        if (!NativeLibrary.load()) {
            throw new AssertionError("the library of this build is on the class path");
        }
        for (Path file : in(Path.of(args[0]))) {
            String output = String.join("\t", run(Files.readString(file))).replace("\n", "\\n");
            System.out.println("case\t" + file.getFileName() + "\t" + output);
        }
        String broken = "{name: x, law: y, steps: [{sample: {at_ms: 1, value: 10, stack: a}}, "
                + "{close: {at_ms: 10, samples: {cpu: [\"b 1\"]}}}]}";
        System.out.println("broken\t" + String.join("\t", run(broken)).replace("\n", "\\n"));
    }
}
