package io.spanprof;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The span that is active on the calling thread, as tracing libraries tell it: for bridges such as the one to
 * OpenTelemetry, not for programs. Labels of open scopes stay.
 */
public final class SpanLink {
    private static final boolean IS_LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
    private static final SpanLink NONE = new SpanLink(0, 0, 0, 0);

    private final long traceHigh;
    private final long traceLow;
    private final long span;
    private final long root;

    private SpanLink(long traceHigh, long traceLow, long span, long root) {
        this.traceHigh = traceHigh;
        this.traceLow = traceLow;
        this.span = span;
        this.root = root;
    }

    /**
     * Makes a span the active one: ids in hex as OpenTelemetry has them, null for no span. Gives what was active before,
     * for {@link #restore}.
     */
    public static SpanLink activate(CharSequence traceId, CharSequence spanId) {
        if (!NativeLibrary.isLoaded()) {
            return NONE;
        }
        ByteBuffer words = ThreadScope.existing();
        SpanLink before = words != null && ThreadScope.isOpen(words)
                ? new SpanLink(ThreadScope.word(words, 1), ThreadScope.word(words, 2), ThreadScope.word(words, 3),
                        ThreadScope.word(words, 4))
                : NONE;
        before.next(traceId, spanId).write();
        return before;
    }

    /** Whether the calling thread has an active span, or one named by its labels. */
    public static boolean isActive() {
        long[] words = Scope.wordsHere();
        return (words[1] | words[2] | words[3]) != 0;
    }

    /** Makes this the active span of the calling thread again. */
    public void restore() {
        if (!NativeLibrary.isLoaded()) {
            return;
        }
        write();
    }

    private void write() {
        // Where nothing is said there is nothing to take back, and a virtual thread needs no following.
        boolean saysNothing = (traceHigh | traceLow | span | root) == 0;
        ByteBuffer words = saysNothing ? ThreadScope.existing() : ThreadScope.current();
        if (words != null) {
            long set = ThreadScope.isOpen(words) ? ThreadScope.word(words, 0) : 0;
            ThreadScope.write(words, set, traceHigh, traceLow, span, root);
        }
    }

    /** The local root is known as long as spans of its trace follow each other on a thread. */
    private SpanLink next(CharSequence traceId, CharSequence spanId) {
        if (traceId == null || spanId == null || traceId.length() != 32 || spanId.length() != 16) {
            return NONE;
        }
        long high = bytes(traceId, 0);
        long low = bytes(traceId, 16);
        return new SpanLink(high, low, bytes(spanId, 0), high == traceHigh && low == traceLow ? root : 0);
    }

    /** Eight bytes of hex, as they lie in memory. */
    private static long bytes(CharSequence hex, int from) {
        long bytes = 0;
        for (int i = from; i < from + 16; i++) {
            bytes = bytes << 4 | (Character.digit(hex.charAt(i), 16) & 0xf);
        }
        return IS_LITTLE ? Long.reverseBytes(bytes) : bytes;
    }
}
