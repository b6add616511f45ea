package io.spanprof;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;

/** The native methods of the library, which {@link NativeLibrary} loads. Strings are packed ({@link Packed}). */
final class Native {
    private Native() {}

    static native byte[] version();

    /**
     * {@code variables}: alternating names and values that override environment variables. {@code application}: identifies
     * the application, held weakly; null for the calling one.
     */
    static native byte[] start(byte[] config, byte[] programName, byte[] variables, Object application);

    /** For the calling application; at the end of the program for all. */
    static native boolean stop(boolean programEnds);

    /** Whether an application that uses this class holds the profiler. */
    static native boolean isHeld();

    static native boolean flush(long nanos);

    static native byte[] update(byte[] config);

    static native byte[] stats();

    static native boolean isRunning();

    static native void countInvalidArgument();

    /** Keys of the profiles that are on. */
    static native byte[] profileTypes();

    /** {@code words}: the current context. {@code ids}: trace id and span id in hex. */
    static native void beginRootSpan(long[] words, byte[] ids);

    /** {@code texts}: trace id and span id in hex, name of the span, method and route of its request. */
    static native void endRootSpan(byte[] texts, long nanos, boolean isError);

    /** A client span begins below a local root; {@link Hex#word} of both ids. */
    static native void beginClientSpan(long root, long span);

    static native void endClientSpan(long span, byte[] name, long nanos);

    /**
     * {@code words}: the current context; {@code ids}: the caller's trace and span. The local root of the request's
     * context; 0 if its end is not to be reported.
     */
    static native long beginRequest(long[] words, byte[] ids);

    static native void endRequest(long request, byte[] endpoint, long nanos, boolean isError);

    /** {@code words}: the current context, whose request has this endpoint if its span names none. */
    static native void nameRequest(long[] words, byte[] endpoint);

    /** {@code attributes}: alternating keys and values of a tracing library's resource. */
    static native void adoptResource(byte[] attributes);

    /** Whether the profiler may find tracer providers and install middlewares. */
    static native boolean followsRequests();

    /** Writes a static field, also a final one. */
    static native void setStatic(Class<?> holder, Field field, Object value);

    /** Called when a handler of {@code /debug/pprof} is created: totals since the start are kept from then on. */
    static native void servePulls();

    /**
     * {@code head}: method, path of the handler, path after it, query, names and values of headers. Returns the length of
     * the packed head (status, names and values of headers), the head, and the body. Null on failure.
     */
    static native byte[] pull(byte[] head, byte[] body);

    /** The number of a new capture; 0 without a profiler. */
    static native int beginCapture();

    /** Ends a capture and keeps its profile until {@link #freeCapture}. */
    static native void endCapture(int capture);

    /** The profile in a format: 0 for pprof, 1 for a flame graph, 2 for folded stacks. Null on failure. */
    static native byte[] captured(int capture, int format);

    /** Negative {@code nanos}: {@code stopTimeout}. */
    static native boolean sendCapture(int capture, long nanos);

    /** Ends a capture without its profile, or frees the profile of an ended one. */
    static native void freeCapture(int capture);

    static native byte[] configKeys();

    /** Adds labels to the context in {@code words}. True if all labels were added unchanged. */
    static native boolean child(long[] words, byte[] labels);

    /** Merges a prepared context into the context in {@code words}. False on failure. */
    static native boolean merge(long[] words, long[] prepared);

    static native byte[] labelsOf(int labelSet);

    /** The calling platform thread's scope words, or null. */
    static native ByteBuffer threadBuffer();

    /** The calling virtual thread's scope words, and whether it is tracked; null if it cannot be. */
    static native ByteBuffer virtualBuffer();

    /** Calls {@code begin} of a class on each new thread, platform or virtual; false if threads do not inherit. */
    static native boolean inherit(Class<?> callbackClass);

    /** Whether the boot loader has loaded the class of this name. */
    static native boolean isLoaded(String className);

    static native byte[] logLines(long nanos);

    /** Returns the queued lines; until {@link #heldLines} other threads get no lines. */
    static native byte[] holdLog();

    /** Returns the lines since {@link #holdLog} and ends the reservation. */
    static native byte[] heldLines();
}
