package io.spanprof;

import java.lang.reflect.Method;
import java.nio.LongBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The active span of the calling thread, as set by tracing libraries: for bridges such as the one to OpenTelemetry, not for
 * programs. Labels of open scopes stay.
 */
public final class SpanLink {
    private static final byte[] NO_DIGITS = {};
    private static final SpanLink NONE = new SpanLink(0, 0, 0, 0);

    /** Open spans, beyond which the local roots of all are forgotten: some programs do not end theirs. */
    private static final int MAX_ROOTS = 65_536;
    /** The local root of each open span that a processor reported. */
    private static final ConcurrentHashMap<Long, Long> ROOTS = new ConcurrentHashMap<>();
    /** Whether a span processor has reported the begin of a span. */
    private static boolean hasProcessor;

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
     * Activates a span: ids in hex as in OpenTelemetry, null for no span. Returns the previous link, for {@link #restore}.
     */
    public static SpanLink activate(CharSequence traceId, CharSequence spanId) {
        if (!NativeLibrary.isLoaded()) {
            return NONE;
        }
        LongBuffer words = ThreadScope.existing();
        SpanLink before = read(words);
        byte[] trace = traceId == null ? NO_DIGITS : Hex.bytesOf(traceId);
        byte[] span = spanId == null ? NO_DIGITS : Hex.bytesOf(spanId);
        if (Hex.isId(trace, Hex.TRACE_DIGITS) && Hex.isId(span, Hex.SPAN_DIGITS)) {
            long high = Hex.word(trace, 0);
            long low = Hex.word(trace, Hex.SPAN_DIGITS);
            long word = Hex.word(span, 0);
            // Without a processor, that of a filter's request.
            Long root = ROOTS.get(word);
            write(words, high, low, word, root == null ? before.root : root);
        } else {
            write(words, 0, 0, 0, before.root);
        }
        return before;
    }

    /** The active span of the calling thread. */
    public static SpanLink here() {
        return NativeLibrary.isLoaded() ? read(ThreadScope.existing()) : NONE;
    }

    private static SpanLink read(LongBuffer words) {
        return words != null && ThreadScope.isOpen(words)
                ? new SpanLink(ThreadScope.word(words, 1), ThreadScope.word(words, 2), ThreadScope.word(words, 3),
                        ThreadScope.word(words, 4))
                : NONE;
    }

    /** Links OpenTelemetry's spans on the module path, where its API does not find the provider of this package. */
    static void ofModulePath() {
        try {
            Method wrap = Class.forName("io.spanprof.opentelemetry.LinkingStorage").getDeclaredMethod("wrapLater");
            wrap.setAccessible(true);
            wrap.invoke(null);
        } catch (ReflectiveOperationException | LinkageError absent) {
            // The program has no OpenTelemetry API.
        }
    }

    /** Whether the calling thread has an active span, or one set by its labels. */
    public static boolean isActive() {
        long[] words = Scope.currentWords();
        return (words[1] | words[2] | words[3]) != 0;
    }

    /** A span became active: if no processor has reported one, and it is of an SDK, the global tracer provider gets a processor. */
    public static void requireProcessor(Object span) {
        if (!hasProcessor) {
            TracerProviders.search(span.getClass());
        }
    }

    /** Reports the begin of a local root span; ids in hex. */
    public static void beginRootSpan(String traceId, String spanId) {
        hasProcessor = true;
        if (NativeLibrary.isLoaded()) {
            long[] words = Scope.currentWords();
            setRoot(word(spanId), words[4] == 0 ? word(spanId) : words[4]);
            Native.beginRootSpan(words, Packed.pack(Arrays.asList(traceId, spanId)));
        }
    }

    /** Reports the begin of a span below another one of this process; ids in hex. Of a call to another service it is a client span. */
    public static void beginSpan(String spanId, String parentId, boolean isCall) {
        Long root = NativeLibrary.isLoaded() ? ROOTS.get(word(parentId)) : null;
        if (root != null) {
            setRoot(word(spanId), root);
            if (isCall) {
                Native.beginClientSpan(root, word(spanId));
            }
        }
    }

    /** Reports the end of a span that began by {@link #beginSpan}. */
    public static void endSpan(String spanId, String name, long nanos, boolean isCall) {
        if (ROOTS.remove(word(spanId)) != null && isCall) {
            Native.endClientSpan(word(spanId), name.getBytes(StandardCharsets.UTF_8), nanos);
        }
    }

    private static void setRoot(long span, long root) {
        if (ROOTS.mappingCount() >= MAX_ROOTS) {
            ROOTS.clear();
        }
        ROOTS.put(span, root);
    }

    /** The word of a span id in hex. */
    private static long word(String spanId) {
        byte[] digits = Hex.bytesOf(spanId);
        return Hex.isId(digits, Hex.SPAN_DIGITS) ? Hex.word(digits, 0) : 0;
    }

    /** Reports the end of a local root span that began by {@link #beginRootSpan}; method and route may be empty. */
    public static void endRootSpan(
            String traceId, String spanId, long nanos, String name, String method, String route, boolean isError) {
        ROOTS.remove(word(spanId));
        if (NativeLibrary.isLoaded()) {
            Native.endRootSpan(Packed.pack(Arrays.asList(traceId, spanId, name, method, route)), nanos, isError);
        }
    }

    /**
     * Reports the begin of a request in the calling thread's context; ids of the caller's trace and span in hex, or
     * empty. Returns its local root, for
     * {@link #withLocalRoot} and {@link #endRequest}; 0 while no profiler runs, or if a span processor or another
     * filter reports its end.
     */
    public static long beginRequest(String traceId, String spanId) {
        return NativeLibrary.isLoaded()
                ? Native.beginRequest(Scope.currentWords(), Packed.pack(Arrays.asList(traceId, spanId)))
                : 0;
    }

    /** Reports the end of a request that {@link #beginRequest} returned; on any thread. */
    public static void endRequest(long request, long nanos, String endpoint, boolean isError) {
        if (NativeLibrary.isLoaded()) {
            Native.endRequest(request, endpoint.getBytes(StandardCharsets.UTF_8), nanos, isError);
        }
    }

    /** Adopts attributes of a tracing library's resource: alternating keys and values. */
    public static void adoptResource(List<String> attributes) {
        if (NativeLibrary.isLoaded()) {
            Native.adoptResource(Packed.pack(attributes));
        }
    }

    /**
     * A copy in the request of a filter; {@link #restore} activates it. Without a span, the local root is its span, and without
     * a trace, it has one of its own: as {@code in_request} of the core, which hashes the local root.
     */
    public SpanLink withLocalRoot(long localRoot) {
        boolean hasTrace = (traceHigh | traceLow) != 0;
        long high = hasTrace ? traceHigh : Long.reverseBytes(mix(Long.reverseBytes(localRoot)));
        return new SpanLink(high, hasTrace ? traceLow : localRoot, span == 0 ? localRoot : span, localRoot);
    }

    /** SplitMix64. */
    private static long mix(long state) {
        long mixed = (state ^ state >>> 30) * 0xBF58476D1CE4E5B9L;
        mixed = (mixed ^ mixed >>> 27) * 0x94D049BB133111EBL;
        return mixed ^ mixed >>> 31;
    }

    /** Keys of the profiles that are on; empty if the profiler does not run. */
    public static List<String> profileTypes() {
        return NativeLibrary.isLoaded() ? Packed.unpack(Native.profileTypes()) : Collections.emptyList();
    }

    /** Activates this span on the calling thread again. */
    public void restore() {
        if (!NativeLibrary.isLoaded()) {
            return;
        }
        write(ThreadScope.existing(), traceHigh, traceLow, span, root);
    }

    /** Closes the scope of a request, and those inside it that the request's work left open. */
    public static void close(Scope scope) {
        scope.end(true);
    }

    /** Writes into the thread's scope words. */
    private static void write(LongBuffer existing, long traceHigh, long traceLow, long span, long root) {
        // An empty link needs no scope words, and a virtual thread need not be tracked for it.
        boolean isEmpty = (traceHigh | traceLow | span | root) == 0;
        LongBuffer words = isEmpty ? existing : InheritedScope.words(existing);
        if (words != null) {
            long set = ThreadScope.isOpen(words) ? ThreadScope.word(words, 0) : 0;
            ThreadScope.replace(words, ThreadScope.state(words), set, traceHigh, traceLow, span, root);
        }
    }
}
