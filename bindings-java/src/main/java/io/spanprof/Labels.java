package io.spanprof;

import java.util.Arrays;
import java.util.Collections;
import java.util.Map;

/** Prepared labels for repeated use: the fastest argument of {@link Spanprof#tag(Labels)}. */
public final class Labels {
    private static final String TRACE_ID = "trace_id";
    private static final String SPAN_ID = "span_id";
    private static final String ROUTE = "http.route";
    private static final String ENDPOINT = "endpoint";
    static final Labels NONE = new Labels(0, 0, 0, 0, null);

    final long labelSet;
    final long traceHigh;
    final long traceLow;
    final long span;
    /** The route, or else the endpoint; null without such a label. */
    final String endpoint;

    private Labels(long labelSet, long traceHigh, long traceLow, long span, String endpoint) {
        this.labelSet = labelSet;
        this.traceHigh = traceHigh;
        this.traceLow = traceLow;
        this.span = span;
        this.endpoint = endpoint;
    }

    /** Labels from a map; {@code trace_id} and {@code span_id} with valid hex values become the span link. */
    public static Labels of(Map<String, ?> labels) {
        if (!NativeLibrary.isReady() || InvalidArgument.isNull(labels, "tag() or Labels.of()", "there are no labels")) {
            return NONE;
        }
        try {
            return read(labels);
        } catch (RuntimeException | Error failure) {
            // The program's map may throw; a request must not fail because of it.
            InvalidArgument.report("labels cannot be read: the map threw " + failure.getClass().getName(),
                    "there are no labels");
            return NONE;
        }
    }

    /** One label. */
    public static Labels of(String key, String value) {
        return of(Collections.singletonMap(key, value));
    }

    boolean isEmpty() {
        return (labelSet | traceHigh | traceLow | span) == 0;
    }

    /** No labels, but the number of a capture. */
    static Labels ofCapture(int number) {
        return new Labels((long) number << Integer.SIZE, 0, 0, 0, null);
    }

    boolean hasTrace() {
        return (traceHigh | traceLow) != 0;
    }

    boolean hasLink() {
        return hasTrace() || span != 0;
    }

    /** Whether the span link of a context is that of these labels. */
    boolean areLinkOf(long[] words) {
        boolean isOfTrace = !hasTrace() || traceHigh == words[1] && traceLow == words[2];
        return hasLink() && isOfTrace && span == words[3];
    }

    /** The string of a value; null for null, and if its {@code toString()} throws. */
    private static String text(String key, Object value) {
        try {
            return value == null ? null : value.toString();
        } catch (RuntimeException | Error failure) {
            InvalidArgument.report("the value of label `" + key + "` cannot be converted: its toString() threw "
                    + failure.getClass().getName(), "the label is left out");
            return null;
        }
    }

    /** Labels with a null key or value are skipped. */
    private static Labels read(Map<String, ?> labels) {
        String[] texts = new String[2 * labels.size()];
        int count = 0;
        int hash = 0;
        long traceHigh = 0;
        long traceLow = 0;
        long span = 0;
        String route = null;
        String endpoint = null;
        for (Map.Entry<String, ?> label : labels.entrySet()) {
            String key = label.getKey();
            Object object = label.getValue();
            String value = object instanceof String ? (String) object : text(key, object);
            if (key == null || value == null) {
                continue;
            }
            if (value.length() == Hex.TRACE_DIGITS && key.equals(TRACE_ID)) {
                byte[] digits = Hex.bytesOf(value);
                if (Hex.isId(digits, Hex.TRACE_DIGITS)) {
                    traceHigh = Hex.word(digits, 0);
                    traceLow = Hex.word(digits, Hex.SPAN_DIGITS);
                    continue;
                }
            }
            if (value.length() == Hex.SPAN_DIGITS && key.equals(SPAN_ID)) {
                byte[] digits = Hex.bytesOf(value);
                if (Hex.isId(digits, Hex.SPAN_DIGITS)) {
                    span = Hex.word(digits, 0);
                    continue;
                }
            }
            if (key.equals(ROUTE)) {
                route = value;
            } else if (key.equals(ENDPOINT)) {
                endpoint = value;
            }
            if (count == texts.length) {
                // Another thread added entries to the map.
                texts = Arrays.copyOf(texts, count + 2);
            }
            texts[count] = key;
            texts[count + 1] = value;
            count += 2;
            hash = (hash * 31 + key.hashCode()) * 31 + value.hashCode();
        }
        long labelSet = count == 0 ? 0 : LabelSets.of(texts, count, hash);
        return new Labels(labelSet, traceHigh, traceLow, span, route == null ? endpoint : route);
    }
}
