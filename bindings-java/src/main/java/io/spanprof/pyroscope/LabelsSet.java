package io.spanprof.pyroscope;

import io.spanprof.Labels;
import java.util.LinkedHashMap;
import java.util.Map;

/** Pyroscope's name of {@link Labels}. */
public final class LabelsSet {
    final Labels labels;

    /** Alternating keys and values. */
    public LabelsSet(Object... keysAndValues) {
        this(pairs(keysAndValues));
    }

    public LabelsSet(Map<String, String> labels) {
        this.labels = Labels.of(labels);
    }

    /** Null for null, which the API methods count as an invalid argument. */
    static Labels labelsOf(LabelsSet set) {
        return set == null ? null : set.labels;
    }

    private static Map<String, String> pairs(Object[] keysAndValues) {
        if (keysAndValues == null) {
            return null;
        }
        if (keysAndValues.length % 2 != 0) {
            throw new IllegalArgumentException("keys and values must alternate, got " + keysAndValues.length + " of them");
        }
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            pairs.put(String.valueOf(keysAndValues[i]), String.valueOf(keysAndValues[i + 1]));
        }
        return pairs;
    }
}
