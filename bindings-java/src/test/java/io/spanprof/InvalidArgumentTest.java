package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Misuse;
import io.spanprof.pyroscope.ConstantContext;
import io.spanprof.pyroscope.LabelsSet;
import io.spanprof.pyroscope.Pyroscope;
import java.time.Duration;
import java.util.AbstractMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Invalid arguments never become exceptions in the request that passes them. No profiler runs. */
class InvalidArgumentTest {
    /** A value whose own method throws. */
    private static final Object FAILING = new Object() {
        @Override
        public String toString() {
            throw new IllegalStateException("thrown by the program");
        }
    };

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    @Test
    void nullLabelsAreNoLabels() {
        Map<String, String> map = null;
        Labels labels = null;
        try (Scope outer = Spanprof.tag(Map.of("a", "1")); Scope none = Spanprof.tag(map); Scope other = Spanprof.tag(labels)) {
            assertEquals(Map.of("a", "1"), ScopesTest.labels());
        }
        assertEquals(Map.of(), ScopesTest.labels());
        assertEquals("done", Spanprof.tagWrapper(map, () -> "done"));
        assertEquals("done", Spanprof.tagWrapper(labels, () -> "done"));
        Spanprof.tagWrapper(map, () -> { });
        assertTrue(Labels.of(null).isEmpty());
        assertTrue(Labels.of("key", null).isEmpty() && Labels.of(null, "value").isEmpty());
    }

    @Test
    void aLabelWhoseToStringThrowsIsSkippedAndTheOthersStay() {
        Map<String, Object> labels = new TreeMap<>(Map.of("endpoint", "/cart", "tenant", FAILING));
        assertEquals(Map.of("endpoint", "/cart"), Spanprof.tagWrapper(labels, ScopesTest::labels));
        assertEquals(Map.of(), ScopesTest.labels());
    }

    @Test
    void aMapThatThrowsIsNoLabels() {
        Map<String, String> failing = new AbstractMap<>() {
            @Override
            public Set<Entry<String, String>> entrySet() {
                throw new IllegalStateException("thrown by the program");
            }
        };
        assertEquals(Map.of(), Spanprof.tagWrapper(failing, ScopesTest::labels));
    }

    @Test
    void nullWorkThrowsAndLeavesNoLabels() {
        Spanprof.Work<String, RuntimeException> work = null;
        assertThrows(NullPointerException.class, () -> Spanprof.tagWrapper(Map.of("a", "1"), work));
        assertEquals(Map.of(), ScopesTest.labels());
    }

    @Test
    void wrappingNullReturnsNull() {
        assertNull(Spanprof.wrap((Runnable) null));
        assertNull(Spanprof.wrap((Callable<?>) null));
        assertNull(Spanprof.wrap((Executor) null));
        assertNull(Spanprof.wrap((ExecutorService) null));
        assertNull(Spanprof.wrap((ScheduledExecutorService) null));
        assertNull(Spanprof.wrapSupplier(null));
        assertNull(Spanprof.wrapFunction(null));
        assertNull(Spanprof.wrapBiFunction(null));
        assertNull(Spanprof.wrapConsumer(null));
        assertNull(Spanprof.wrapThreadFactory(null));
        ExecutorService executor = Spanprof.wrap(Executors.newSingleThreadExecutor());
        assertThrows(NullPointerException.class, () -> executor.submit((Runnable) null));
        executor.shutdown();
    }

    @Test
    void nullTimeoutsAndSettingsLeaveTheConfigurationUnchanged() {
        Duration none = null;
        assertTrue(Spanprof.flush(none));
        assertFalse(Spanprof.update(null));
        assertEquals("{}", SpanprofConfig.of(null).toJson());
        Map<String, String> tags = new HashMap<>();
        tags.put("a", null);
        tags.put("b", "1");
        SpanprofConfig config = SpanprofConfig.builder().tags(tags).headers(null).destinations(null).build();
        assertEquals("{\"tags\":{\"b\":\"1\"},\"headers\":null,\"destinations\":null}", config.toJson());
    }

    @Test
    void pyroscopesNamesAcceptNullToo() throws Exception {
        assertEquals("done", Pyroscope.LabelsWrapper.run((LabelsSet) null, () -> "done"));
        ConstantContext context = ConstantContext.of(null);
        context.activate();
        context.deactivate();
        Map<String, String> none = null;
        assertEquals("done", Pyroscope.LabelsWrapper.run(new LabelsSet(none), () -> "done"));
    }

    @Test
    void invalidArgumentsAreCountedAndTheFirstIsAWarning() throws Exception {
        List<String> output = Programs.run(Misuse.class, List.of());
        assertEquals(3, Programs.number(output, "counted"), output::toString);
        List<String> warnings = output.stream().filter(line -> line.contains("java.invalid_arguments")).toList();
        assertEquals(1, warnings.size(), output::toString);
        assertTrue(warnings.get(0).contains("tag()"), warnings::toString);
    }
}
