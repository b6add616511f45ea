package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The context that a handler would read while scopes open and close. No profiler runs. */
class ScopesTest {
    private static final String TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
    private static final String SPAN = "00f067aa0ba902b7";

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    /** The labels that a sample of this thread would have now. */
    static Map<String, String> labels() {
        Map<String, String> labels = new TreeMap<>();
        LongBuffer scope = InheritedScope.words();
        if (ThreadScope.isOpen(scope)) {
            List<String> flat = Packed.unpack(Native.labelsOf((int) ThreadScope.word(scope, 0)));
            for (int i = 0; i + 1 < flat.size(); i += 2) {
                labels.put(flat.get(i), flat.get(i + 1));
            }
        }
        return labels;
    }

    private static String span() {
        long[] words = ThreadScope.words(InheritedScope.words());
        StringBuilder hex = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            hex.append(String.format("%02x", words[3] >>> (8 * i) & 0xff));
        }
        return hex.toString();
    }

    @Test
    void innerScopesOverrideValuesAndClosingRestoresThem() {
        Labels prepared = Labels.of(Map.of("a", "2", "c", "3"));
        try (Scope outer = Spanprof.tag(Map.of("a", "1", "b", "1"))) {
            assertEquals(Map.of("a", "1", "b", "1"), labels());
            try (Scope inner = Spanprof.tag(prepared)) {
                assertEquals(Map.of("a", "2", "b", "1", "c", "3"), labels());
                Spanprof.tagWrapper(Map.of("b", 7), () -> assertEquals("7", labels().get("b")));
            }
            assertEquals(Map.of("a", "1", "b", "1"), labels());
        }
        assertEquals(Map.of(), labels());
    }

    @Test
    void tagWrapperReturnsValuesThrowsExceptionsAndRemovesLabels() {
        Object value = new Object();
        assertSame(value, Spanprof.tagWrapper(Map.of("a", "1"), () -> value));
        IOException failure = new IOException("as it was");
        IOException thrown = assertThrows(IOException.class, () -> Spanprof.tagWrapper(Map.of("a", "1"), () -> {
            if (labels().equals(Map.of("a", "1"))) {
                throw failure;
            }
            return null;
        }));
        assertSame(failure, thrown);
        assertEquals(Map.of(), labels());
    }

    @Test
    void traceAndSpanIdsInLabelsBecomeTheSpanLink() {
        try (Scope outer = Spanprof.tag(Map.of("trace_id", TRACE, "span_id", SPAN, "route", "/cart"))) {
            assertEquals(Map.of("route", "/cart"), labels());
            assertEquals(SPAN, span());
            try (Scope inner = Spanprof.tag(Map.of("step", "2"))) {
                assertEquals(SPAN, span());
            }
        }
        try (Scope notHex = Spanprof.tag(Map.of("span_id", "no hex"))) {
            assertEquals(Map.of("span_id", "no hex"), labels());
        }
    }

    @Test
    void aScopeClosedTwiceOrOnAnotherThreadChangesNothing() throws InterruptedException {
        Scope scope = Spanprof.tag(Map.of("a", "1"));
        AtomicReference<Map<String, String>> seen = new AtomicReference<>();
        Thread other = new Thread(() -> {
            scope.close();
            seen.set(labels());
        });
        other.start();
        other.join();
        assertEquals(Map.of(), seen.get());
        assertEquals(Map.of("a", "1"), labels());
        scope.close();
        try (Scope next = Spanprof.tag(Map.of("b", "1"))) {
            scope.close();
            assertEquals(Map.of("b", "1"), labels());
        }
        assertEquals(Map.of(), labels());
    }

    @Test
    void scopesMayBeClosedInAnyOrder() {
        Random random = new Random(39);
        List<Map.Entry<Scope, Map<String, String>>> open = new ArrayList<>();
        for (int step = 0; step < 3_000; step++) {
            if (open.size() < 4 && random.nextBoolean()) {
                Map<String, String> labels = Map.of("k" + random.nextInt(3), "v" + random.nextInt(3));
                open.add(Map.entry(Spanprof.tag(labels), labels));
            } else if (!open.isEmpty()) {
                open.remove(random.nextInt(open.size())).getKey().close();
            }
            Map<String, String> expected = new TreeMap<>();
            open.forEach(scope -> expected.putAll(scope.getValue()));
            assertEquals(expected, labels(), "step " + step);
        }
        open.forEach(scope -> scope.getKey().close());
        assertEquals(Map.of(), labels());
    }

    @Test
    void workThatIsOverEndsTheScopesThatItLeftOpen() {
        List<Scope> left = new ArrayList<>();
        Runnable work = () -> left.add(Spanprof.tag(Map.of("inner", "i")));
        Runnable wrapped = Spanprof.wrap(work);
        try (Scope outer = Spanprof.tag(Map.of("a", "1"))) {
            wrapped.run();
            assertEquals(Map.of("a", "1"), labels());
            Spanprof.tagWrapper(Map.of("b", "2"), work);
            assertEquals(Map.of("a", "1"), labels());
            try (Scope next = Spanprof.tag(Map.of("inner", "i"))) {
                left.forEach(Scope::close);
                assertEquals(Map.of("a", "1", "inner", "i"), labels());
            }
        }
        assertEquals(Map.of(), labels());
    }

    @Test
    void whileMoreThanEightScopesAreOpenOneThatEndsEndsThoseInside() {
        List<Scope> open = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            open.add(Spanprof.tag(Map.of("depth", String.valueOf(i))));
        }
        List<String> innermost = List.of(11, 9, 10, 6, 8, 7).stream().map(i -> {
            open.get(i).close();
            return labels().get("depth");
        }).toList();
        assertEquals(List.of("10", "8", "8", "5", "5", "5"), innermost);
        open.forEach(Scope::close);
        assertEquals(Map.of(), labels());
    }

    @Test
    void labelsWithAnyCharactersStayUnchanged() {
        String text = "käse\u0000\ud83e\uddc0,=\n\"";
        Map<String, String> odd = new TreeMap<>();
        odd.put("text", text);
        odd.put("nothing", null);
        try (Scope scope = Spanprof.tag(odd)) {
            assertEquals(Map.of("text", text), labels());
        }
    }
}
