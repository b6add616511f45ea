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
}
