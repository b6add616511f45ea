package io.spanprof.pyroscope;

import io.spanprof.Labels;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.BiConsumer;

/** Pyroscope's name of {@link Labels}. */
public final class LabelsSet {
    final Labels labels;
    private final Map<String, String> pairs;

    /** Keys and values in turn. */
    public LabelsSet(Object... keysAndValues) {
        this(pairs(keysAndValues));
    }

    public LabelsSet(Map<String, String> labels) {
        this.pairs = new LinkedHashMap<>(labels);
        this.labels = Labels.of(pairs);
    }

    /** Calls with each key and its value. */
    public void forEachLabel(BiConsumer<String, String> consumer) {
        pairs.forEach(consumer);
    }

    private static Map<String, String> pairs(Object[] keysAndValues) {
        if (keysAndValues.length % 2 != 0) {
            throw new IllegalArgumentException("keys and values come in turn, got " + keysAndValues.length + " of them");
        }
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            pairs.put(String.valueOf(keysAndValues[i]), String.valueOf(keysAndValues[i + 1]));
        }
        return pairs;
    }
}
