package io.spanprof;

import java.nio.LongBuffer;

/**
 * The span that is active on the calling thread, as tracing libraries tell it: for bridges such as the one to
 * OpenTelemetry, not for programs. Labels of open scopes stay.
 */
public final class SpanLink {
    private static final byte[] NO_LETTERS = {};
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
        LongBuffer words = ThreadScope.existing();
        SpanLink before = said(words);
        byte[] trace = traceId == null ? NO_LETTERS : Hex.letters(traceId);
        byte[] span = spanId == null ? NO_LETTERS : Hex.letters(spanId);
        if (Hex.isId(trace, Hex.TRACE_DIGITS) && Hex.isId(span, Hex.SPAN_DIGITS)) {
            long high = Hex.word(trace, 0);
            long low = Hex.word(trace, Hex.SPAN_DIGITS);
            // The local root is known as long as spans of its trace follow each other on a thread.
            boolean isSameTrace = high == before.traceHigh && low == before.traceLow;
            say(words, high, low, Hex.word(span, 0), isSameTrace ? before.root : 0);
        } else {
            say(words, 0, 0, 0, 0);
        }
        return before;
    }

    /** What is active on the calling thread. */
    public static SpanLink here() {
        return NativeLibrary.isLoaded() ? said(ThreadScope.existing()) : NONE;
    }

    private static SpanLink said(LongBuffer words) {
        return words != null && ThreadScope.isOpen(words)
                ? new SpanLink(ThreadScope.word(words, 1), ThreadScope.word(words, 2), ThreadScope.word(words, 3),
                        ThreadScope.word(words, 4))
                : NONE;
    }

    /** The same with another span, its id as a number; 0 for none. {@link #restore} makes it the active one. */
    public SpanLink withSpan(long spanId) {
        return new SpanLink(traceHigh, traceLow, Hex.inMemory(spanId), root);
    }

    /** The same in another trace, its id in hex; none when it is no such id. {@link #restore} makes it the active one. */
    public SpanLink withTrace(CharSequence traceId) {
        byte[] trace = traceId == null ? NO_LETTERS : Hex.letters(traceId);
        boolean isTrace = Hex.isId(trace, Hex.TRACE_DIGITS);
        return new SpanLink(isTrace ? Hex.word(trace, 0) : 0, isTrace ? Hex.word(trace, Hex.SPAN_DIGITS) : 0, span, 0);
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
        say(ThreadScope.existing(), traceHigh, traceLow, span, root);
    }

    /** In the thread's words, if it has any yet. */
    private static void say(LongBuffer existing, long traceHigh, long traceLow, long span, long root) {
        // Where nothing is said there is nothing to take back, and a virtual thread needs no following.
        boolean saysNothing = (traceHigh | traceLow | span | root) == 0;
        LongBuffer words = saysNothing ? existing : ThreadScope.current(existing);
        if (words != null) {
            long set = ThreadScope.isOpen(words) ? ThreadScope.word(words, 0) : 0;
            ThreadScope.write(words, set, traceHigh, traceLow, span, root);
        }
    }
}
