package io.spanprof;

import java.util.Map;

/** Labels made ready once and used many times: the quickest way into {@link Spanprof#tag(Labels)}. */
public final class Labels {
    final long[] words;
    final boolean isEmpty;

    private Labels(long[] words) {
        this.words = words;
        boolean empty = true;
        for (long word : words) {
            empty &= word == 0;
        }
        this.isEmpty = empty;
    }

    /** Labels from a map; {@code trace_id} and {@code span_id} with valid hex values become the link to the span. */
    public static Labels of(Map<String, ?> labels) {
        long[] words = new long[ThreadScope.WORDS];
        if (NativeLibrary.isReady()) {
            Native.child(words, Packed.pack(labels));
        }
        return new Labels(words);
    }

    /** One label. */
    public static Labels of(String key, String value) {
        return of(Map.of(key, value));
    }
}
