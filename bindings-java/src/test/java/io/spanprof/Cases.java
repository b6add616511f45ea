package io.spanprof;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
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
        /** Local roots of the open requests of the case, by their names. */
        private final Map<String, Long> requests = new HashMap<>();

        /** The context of a sample; {@code core/src/conformance/case.rs} describes the arguments. */
        long[] contextOf(
                byte[] scopes, byte[] closed, boolean prepared, byte[] boundIn, boolean returned, byte[] request)
                throws Exception {
            if (closed.length != 0) {
                List<Scope> opened = new ArrayList<>();
                scopesIn(scopes).forEach(labels -> opened.add(Spanprof.tag(labels)));
                Packed.unpack(closed).forEach(index -> opened.get(Integer.parseInt(index)).close());
                long[] context = Scope.currentWords();
                opened.forEach(Scope::close);
                return context;
            }
            List<String> names = Packed.unpack(request);
            long localRoot = names.isEmpty() ? 0 : requests.computeIfAbsent(names.get(0), name -> SpanLink.beginRequest("", ""));
            List<Map<String, String>> around = scopesIn(scopes);
            Callable<long[]> call = boundIn == null
                    ? () -> wordsIn(localRoot)
                    : inside(scopesIn(boundIn), prepared, () -> Spanprof.wrap((Callable<long[]>) Scope::currentWords));
            int ended = returned && boundIn == null && !around.isEmpty() ? 1 : 0;
            List<Map<String, String>> open = around.subList(0, around.size() - ended);
            return inside(open, prepared, () -> {
                long[] context = inside(around.subList(open.size(), around.size()), prepared, call);
                return returned ? Scope.currentWords() : context;
            });
        }

        /** The context of the calling thread in a request; 0 for none. */
        private static long[] wordsIn(long localRoot) {
            SpanLink before = SpanLink.here();
            if (localRoot != 0) {
                before.withLocalRoot(localRoot).restore();
            }
            long[] words = Scope.currentWords();
            before.restore();
            return words;
        }

        void endRequest(byte[] names, long milliseconds, boolean isError) {
            List<String> unpacked = Packed.unpack(names);
            long nanos = TimeUnit.MILLISECONDS.toNanos(milliseconds);
            SpanLink.endRequest(requests.remove(unpacked.get(0)), nanos, unpacked.get(1), isError);
        }

        private static <T> T inside(List<Map<String, String>> scopes, boolean prepared, Callable<T> work) throws Exception {
            if (scopes.isEmpty()) {
                return work.call();
            }
            Spanprof.Work<T, Exception> inner = () -> inside(scopes.subList(1, scopes.size()), prepared, work);
            return prepared
                    ? Spanprof.tagWrapper(Labels.of(scopes.get(0)), inner)
                    : Spanprof.tagWrapper(scopes.get(0), inner);
        }

        /** Scopes from their packed form: the number of labels of each, then its keys and values. */
        private static List<Map<String, String>> scopesIn(byte[] packed) {
            Iterator<String> texts = Packed.unpack(packed).iterator();
            List<Map<String, String>> scopes = new ArrayList<>();
            while (texts.hasNext()) {
                Map<String, String> labels = new LinkedHashMap<>();
                for (int left = Integer.parseInt(texts.next()); left > 0; left--) {
                    labels.put(texts.next(), texts.next());
                }
                scopes.add(labels);
            }
            return scopes;
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
        String broken = "{name: x, rule: y, steps: [{sample: {at_ms: 1, value: 10, stack: a}}, "
                + "{close: {at_ms: 10, samples: {cpu: [\"b 1\"]}}}]}";
        System.out.println("broken\t" + String.join("\t", run(broken)).replace("\n", "\\n"));
    }
}
