package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.yaml.snakeyaml.Yaml;

/** Compares the package's public names with the list shared by all languages and with the core's keys. */
class SurfaceTest {
    private static final Path SURFACE = Path.of("../core/conformance/surface.yaml");
    /** Methods of the builder that set no key. */
    private static final Set<String> BUILDERS_OWN = Set.of("set", "build");

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static Set<String> publicMethods(Class<?> type) {
        return Arrays.stream(type.getDeclaredMethods())
                .filter(method -> Modifier.isPublic(method.getModifiers()) && !method.isSynthetic())
                .map(Method::getName).collect(Collectors.toCollection(TreeSet::new));
    }

    /** The public classes of the package, by their name after {@code io.spanprof.}; {@code Outer.Inner} for a nested class. */
    private static Map<String, Class<?>> publicClasses() throws Exception {
        Path root = Path.of(Spanprof.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        List<Path> files;
        try (Stream<Path> tree = Files.walk(root.resolve("io/spanprof"))) {
            files = tree.filter(file -> file.toString().endsWith(".class") && !file.endsWith("package-info.class")).toList();
        }
        Map<String, Class<?>> classes = new TreeMap<>();
        for (Path file : files) {
            String path = root.relativize(file).toString();
            String name = path.substring(0, path.length() - ".class".length()).replace('/', '.');
            Class<?> type = Class.forName(name, false, Spanprof.class.getClassLoader());
            if (isPublic(type)) {
                classes.put(type.getCanonicalName().substring("io.spanprof.".length()), type);
            }
        }
        return classes;
    }

    private static boolean isPublic(Class<?> type) {
        Class<?> outer = type.getDeclaringClass();
        return Modifier.isPublic(type.getModifiers()) && !type.isAnonymousClass() && (outer == null || isPublic(outer));
    }

    /** Classes and their public methods in the shared list. The setters of the builder are the core's keys. */
    @Test
    void publicClassesAndMethodsMatchTheSharedList() throws Exception {
        Map<String, Set<String>> found = new TreeMap<>();
        for (Map.Entry<String, Class<?>> type : publicClasses().entrySet()) {
            found.put(type.getKey(), publicMethods(type.getValue()));
        }
        found.put("SpanprofConfig.Builder", new TreeSet<>(BUILDERS_OWN));
        Map<String, Set<String>> listed = new TreeMap<>();
        Map<?, ?> java = (Map<?, ?>) ((Map<?, ?>) new Yaml().load(Files.readString(SURFACE))).get("java");
        java.forEach((type, names) -> listed.put(String.valueOf(type),
                ((List<?>) names).stream().map(String::valueOf).collect(Collectors.toCollection(TreeSet::new))));
        assertEquals(text(listed), text(found));
    }

    private static String text(Map<String, Set<String>> names) {
        return names.entrySet().stream().map(type -> "  " + type.getKey() + ": " + type.getValue() + "\n").collect(Collectors.joining());
    }

    @Test
    void theBuildersMethodsMatchTheCoresKeys() {
        List<String> flat = Packed.unpack(Native.configKeys());
        Set<String> keys = new TreeSet<>();
        for (int i = 0; i < flat.size(); i += 3) {
            keys.add(flat.get(i));
        }
        assertFalse(keys.isEmpty());
        Set<String> methods = publicMethods(SpanprofConfig.Builder.class);
        methods.removeAll(BUILDERS_OWN);
        for (String method : methods) {
            String key = method.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
            assertTrue(keys.remove(key), () -> method + " is no key: " + keys);
        }
        assertEquals(Set.of(), keys, "keys without a method");
    }

    @Test
    void anInvalidSettingIsAnErrorWithAHint() {
        SpanprofConfig config = SpanprofConfig.builder().sampleRate(0).build();
        SpanprofException error = assertThrows(SpanprofException.class, () -> Spanprof.start(config));
        assertEquals("invalid_config", error.kind());
        assertTrue(error.getMessage().contains("sampleRate"), error::getMessage);
        assertFalse(error.hint().isEmpty());
        assertFalse(Spanprof.isRunning());
    }

    @Test
    void aDisabledProfilerTakesNoSamplesUntilItIsEnabled() {
        assertFalse(Spanprof.start(SpanprofConfig.builder().enabled(false).destinations(List.of()).build()));
        assertFalse(Spanprof.isRunning());
        assertEquals("disabled by enabled=false", Spanprof.stats().get("state"));
        assertFalse(Spanprof.start(SpanprofConfig.builder().enabled(false).destinations(List.of()).build()));
        assertTrue(Spanprof.update(SpanprofConfig.builder().enabled(true).build()));
        assertTrue(Spanprof.isRunning());
        assertTrue(Spanprof.update(SpanprofConfig.builder().enabled(false).build()));
        assertFalse(Spanprof.isRunning());
        assertTrue(Spanprof.flush() && Spanprof.stop());
        assertFalse(Spanprof.update(SpanprofConfig.builder().sampleRate(50).build()));
        assertEquals(Map.of(), Spanprof.stats());
    }

    @Test
    void anOverflowingTimeSaturates() {
        Duration overflow = Duration.ofSeconds(Long.MAX_VALUE);
        assertTrue(Spanprof.flush(overflow) && Spanprof.flush(overflow.negated()));
        SpanprofConfig config = SpanprofConfig.builder().uploadInterval(overflow).build();
        SpanprofException error = assertThrows(SpanprofException.class, () -> Spanprof.start(config));
        assertTrue(error.getMessage().contains("uploadInterval"), error::getMessage);
    }

    @Test
    void settingsOfEveryTypeAreConvertedToJson() {
        SpanprofConfig config = SpanprofConfig.builder()
                .uploadInterval(Duration.ofMillis(1500)).tags(Map.of("a\"b", "\n\\"))
                .destinations(List.of(Map.of("type", "file"))).set("nothing", null).build();
        assertEquals("{\"uploadInterval\":1.5,\"tags\":{\"a\\\"b\":\"\\u000a\\\\\"},"
                + "\"destinations\":[{\"type\":\"file\"}],\"nothing\":null}", config.toJson());
        assertEquals("SpanprofConfig[uploadInterval, tags, destinations, nothing]", config.toString());
    }
}
