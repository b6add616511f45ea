package io.spanprof;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Lists of strings packed into one byte array: each string's length in four bytes, then UTF-8. The library and Java pass
 * lists in this form.
 */
final class Packed {
    private Packed() {}

    static byte[] pack(List<String> texts) {
        byte[][] parts = new byte[texts.size()][];
        int size = 0;
        for (int i = 0; i < parts.length; i++) {
            parts[i] = texts.get(i).getBytes(StandardCharsets.UTF_8);
            size += 4 + parts[i].length;
        }
        ByteBuffer packed = ByteBuffer.allocate(size).order(ByteOrder.nativeOrder());
        for (byte[] part : parts) {
            packed.putInt(part.length).put(part);
        }
        return packed.array();
    }

    /** Alternating keys and values; pairs with a null key or value are skipped. */
    static byte[] pack(Map<String, ?> labels) {
        List<String> texts = new ArrayList<>(2 * labels.size());
        for (Map.Entry<String, ?> label : labels.entrySet()) {
            if (label.getKey() != null && label.getValue() != null) {
                texts.add(label.getKey());
                texts.add(String.valueOf(label.getValue()));
            }
        }
        return pack(texts);
    }

    /** An empty list for null, which the library returns after an internal failure. */
    static List<String> unpack(byte[] bytes) {
        List<String> texts = new ArrayList<>();
        if (bytes == null) {
            return texts;
        }
        ByteBuffer packed = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
        while (packed.remaining() >= 4) {
            byte[] text = new byte[packed.getInt()];
            packed.get(text);
            texts.add(new String(text, StandardCharsets.UTF_8));
        }
        return texts;
    }
}
