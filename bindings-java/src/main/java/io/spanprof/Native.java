package io.spanprof;

import java.nio.ByteBuffer;

/** The native methods of the library; {@link NativeLibrary} loads it. Texts are packed ({@link Packed}). */
final class Native {
    private Native() {}

    static native byte[] version();

    /**
     * {@code variables}: names and values in turn, in place of those of the environment. {@code application}: stands for the
     * application, held weakly.
     */
    static native byte[] start(byte[] config, byte[] programName, byte[] variables, Object application);

    /** {@code application}: as given to {@code start}; null at the end of the program. */
    static native boolean stop(Object application);

    /** Whether an application that calls this class has started the profiler and not stopped it. */
    static native boolean isHeld();

    static native boolean flush(long nanos);

    static native byte[] update(byte[] config);

    static native byte[] stats();

    static native boolean isRunning();

    static native void countInvalidArgument();

    static native byte[] configKeys();

    /** Puts labels on top of the scope in {@code words}. True when each of them is there as it was given. */
    static native boolean child(long[] words, byte[] labels);

    /** Puts a prepared scope on top of the scope in {@code words}. False when that failed. */
    static native boolean merge(long[] words, long[] prepared);

    static native byte[] labelsOf(int labelSet);

    /** The calling platform thread's words, or null. */
    static native ByteBuffer threadBuffer();

    /** The calling virtual thread's words, and whether they are followed; null where they cannot be. */
    static native ByteBuffer virtualBuffer();

    /** Has {@code begin} of a class called on each new thread, platform or virtual; false where threads inherit nothing. */
    static native boolean inherit(Class<?> asked);

    static native byte[] logLines(long nanos);

    /** Until {@link #heldLines} no other thread is given lines; those that wait already. */
    static native byte[] holdLog();

    /** What waits, for the thread that called {@link #holdLog}. */
    static native byte[] heldLines();
}
