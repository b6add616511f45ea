package io.spanprof.pyroscope;

import java.util.function.BiConsumer;

/** Labels of every sample of the thread that called {@link ProfilerApi#createScopedContext}, until they are closed. */
public interface ProfilerScopedContext {
    /** Calls the consumer with each key and its value. */
    void forEachLabel(BiConsumer<String, String> consumer);

    /** Restores the thread's previous labels. */
    void close();
}
