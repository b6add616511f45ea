package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Compares the label sets cached in Java with those of the library. No profiler runs. */
class LabelSetsTest {
    private static final String TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
    private static final String SPAN = "00f067aa0ba902b7";

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static Map<String, String> labels() {
        List<String> flat = Packed.unpack(Native.labelsOf((int) Scope.currentWords()[0]));
        Map<String, String> labels = new TreeMap<>();
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            labels.put(flat.get(i), flat.get(i + 1));
        }
        return labels;
    }

    private static long[] fromLibrary(long[] parent, Map<String, String> labels) {
        List<String> texts = new ArrayList<>();
        labels.forEach((key, value) -> texts.addAll(List.of(key, value)));
        long[] words = parent.clone();
        Native.child(words, Packed.pack(texts));
        return words;
    }

    private static long[] wordsInScope(Map<String, String> labels) {
        try (Scope scope = Spanprof.tag(labels)) {
            return Scope.currentWords();
        }
    }

    @Test
    void javaAndTheLibraryAcceptTheSameIds() {
        List<String> values = List.of(TRACE, TRACE.toUpperCase(java.util.Locale.ROOT), TRACE.substring(1), TRACE + "0",
                "0".repeat(32), "0".repeat(16) + SPAN, SPAN + "0".repeat(16), "g" + TRACE.substring(1), TRACE.substring(1) + "/",
                TRACE.substring(1) + "\u00e1", TRACE.substring(1) + "\u0661", TRACE.substring(1) + "\uff11", "a".repeat(15) + "é",
                SPAN, "0".repeat(16), "0".repeat(15) + "1", SPAN.substring(1), "-" + SPAN.substring(1), "", "no hex");
        long[] outer = fromLibrary(new long[ThreadScope.WORDS], Map.of("trace_id", TRACE, "span_id", SPAN, "a", "1"));
        for (String value : values) {
            for (Map<String, String> labels : List.of(Map.of("trace_id", value), Map.of("span_id", value),
                    Map.of("trace_id", value, "span_id", SPAN), Map.of("trace_id", TRACE, "span_id", value, "b", "2"))) {
                assertArrayEquals(fromLibrary(new long[ThreadScope.WORDS], labels), wordsInScope(labels), labels::toString);
                try (Scope scope = Spanprof.tag(Map.of("trace_id", TRACE, "span_id", SPAN, "a", "1"))) {
                    assertArrayEquals(outer, Scope.currentWords());
                    assertArrayEquals(fromLibrary(outer, labels), wordsInScope(labels), () -> "inside: " + labels);
                }
            }
        }
    }

    @Test
    void aSetHasTheLabelsOfItsMapTheFirstTimeAndEveryTime() {
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 2_000; i++) {
                Map<String, String> labels = Map.of("number", String.valueOf(i), "half", String.valueOf(i / 2));
                try (Scope scope = Spanprof.tag(labels)) {
                    assertEquals(labels, labels());
                }
            }
        }
    }

    @Test
    void aChangedMapGivesItsCurrentLabels() {
        Map<String, Object> labels = new HashMap<>(Map.of("a", new StringBuilder("1")));
        assertEquals(Map.of("a", "1"), Spanprof.tagWrapper(labels, LabelSetsTest::labels));
        ((StringBuilder) labels.get("a")).append('2');
        assertEquals(Map.of("a", "12"), Spanprof.tagWrapper(labels, LabelSetsTest::labels));
        labels.put("b", 7);
        assertEquals(Map.of("a", "12", "b", "7"), Spanprof.tagWrapper(labels, LabelSetsTest::labels));
        labels.clear();
        assertEquals(Map.of(), Spanprof.tagWrapper(labels, LabelSetsTest::labels));
    }

    @Test
    void nestedScopesHaveTheLabelsOfBothRegardlessOfEarlierNesting() {
        List<Labels> inner = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            inner.add(Labels.of(Map.of("a", "inner" + i, "b", String.valueOf(i))));
        }
        for (int round = 0; round < 2; round++) {
            for (int outer = 0; outer < 40; outer++) {
                try (Scope scope = Spanprof.tag(Map.of("a", "outer" + outer, "c", "3"))) {
                    for (int i = 0; i < inner.size(); i++) {
                        try (Scope nested = Spanprof.tag(inner.get(i))) {
                            assertEquals(Map.of("a", "inner" + i, "b", String.valueOf(i), "c", "3"), labels());
                        }
                    }
                    assertEquals(Map.of("a", "outer" + outer, "c", "3"), labels());
                }
            }
        }
    }

    @Test
    void concurrentThreadsGetTheirOwnSets() throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(4);
        try {
            List<Future<?>> all = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                int first = thread;
                all.add(executor.submit(() -> {
                    for (int i = 0; i < 8_000; i++) {
                        Map<String, String> labels = Map.of("shared", String.valueOf((i * 7 + first) % 90));
                        try (Scope outer = Spanprof.tag(Map.of("outer", String.valueOf(i % 20)));
                                Scope scope = Spanprof.tag(labels)) {
                            Map<String, String> both = new TreeMap<>(labels);
                            both.put("outer", String.valueOf(i % 20));
                            assertEquals(both, labels());
                        }
                    }
                }));
            }
            for (Future<?> one : all) {
                one.get(60, TimeUnit.SECONDS);
            }
        } finally {
            executor.shutdownNow();
        }
    }

    @Test
    void theLibraryReportsWhetherALimitCutALabel() {
        long[] words = new long[ThreadScope.WORDS];
        assertTrue(Native.child(words, Packed.pack(List.of("whole", "yes"))));
        assertFalse(Native.child(words, Packed.pack(List.of("long", "x".repeat(1 << 16)))));
        String cut = "x".repeat(1 << 16);
        String once = Spanprof.tagWrapper(Map.of("long", cut), LabelSetsTest::labels).get("long");
        assertTrue(once.length() < cut.length() && cut.startsWith(once), once);
        assertEquals(once, Spanprof.tagWrapper(Map.of("long", cut), LabelSetsTest::labels).get("long"));
    }

    @Test
    void invalidLabelsAreSkippedWithoutAnException() {
        Map<String, Object> labels = new HashMap<>();
        labels.put("nothing", null);
        labels.put(null, "nameless");
        labels.put("says_null", new Object() {
            @Override
            public String toString() {
                return null;
            }
        });
        labels.put("kept", "1");
        assertEquals(Map.of("kept", "1"), Spanprof.tagWrapper(labels, LabelSetsTest::labels));
    }
}
