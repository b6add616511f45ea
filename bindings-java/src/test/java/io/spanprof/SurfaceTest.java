package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
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
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.yaml.snakeyaml.Yaml;

/** Compares the package's public names with the list shared by all languages and with the core's keys. */
class SurfaceTest {
    private static final Path SURFACE = Path.of("../core/conformance/surface.yaml");

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static Set<String> publicMethods(Class<?> type) {
        return Arrays.stream(type.getDeclaredMethods())
                .filter(method -> Modifier.isPublic(method.getModifiers()) && !method.isSynthetic())
                .map(Method::getName).collect(Collectors.toCollection(TreeSet::new));
    }

    private static Map<String, Object> surface() throws IOException {
        return new Yaml().load(Files.readString(SURFACE));
    }

    /** The names of a class in the shared list. */
    private static Set<String> listed(String type) throws IOException {
        return names(((Map<?, ?>) surface().get("java")).get(type));
    }

    private static Set<String> names(Object list) {
        return ((List<?>) list).stream().map(String::valueOf).collect(Collectors.toCollection(TreeSet::new));
    }

    @Test
    void publicMethodsMatchTheSharedList() throws IOException {
        assertEquals(listed("Spanprof"), publicMethods(Spanprof.class));
        assertEquals(listed("Scope"), publicMethods(Scope.class));
        assertEquals(listed("Labels"), publicMethods(Labels.class));
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
        methods.removeAll(Set.of("set", "build"));
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
    void whenDisabledNothingRunsAndEveryMethodReturns() {
        assertFalse(Spanprof.start(SpanprofConfig.builder().enabled(false).build()));
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
