package io.spanprof;

import java.time.Duration;
import java.util.Map;

/** Writes configuration values as JSON for the library. Values of other types are written as strings. */
final class Json {
    private Json() {}

    static String write(Object value) {
        StringBuilder json = new StringBuilder();
        append(json, value);
        return json.toString();
    }

    private static void append(StringBuilder json, Object value) {
        if (value == null || value instanceof Boolean) {
            json.append(value);
        } else if (value instanceof Duration) {
            Duration duration = (Duration) value;
            json.append(duration.getSeconds() + duration.getNano() / 1e9);
        } else if (value instanceof Number) {
            Number number = (Number) value;
            boolean isFinite = Double.isFinite(number.doubleValue());
            json.append(isFinite ? number.toString() : "\"" + number + "\"");
        } else if (value instanceof Map) {
            Map<?, ?> map = (Map<?, ?>) value;
            String comma = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                json.append(comma);
                quote(json, String.valueOf(entry.getKey()));
                json.append(':');
                append(json, entry.getValue());
                comma = ",";
            }
            json.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable) {
            String comma = "";
            json.append('[');
            for (Object item : (Iterable<?>) value) {
                json.append(comma);
                append(json, item);
                comma = ",";
            }
            json.append(']');
        } else {
            quote(json, value.toString());
        }
    }

    private static void quote(StringBuilder json, String text) {
        json.append('"');
        for (int i = 0; i < text.length(); i++) {
            char character = text.charAt(i);
            if (character == '"' || character == '\\') {
                json.append('\\').append(character);
            } else if (character < ' ') {
                json.append(String.format("\\u%04x", (int) character));
            } else {
                json.append(character);
            }
        }
        json.append('"');
    }
}
