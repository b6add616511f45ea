package io.spanprof.pyroscope;

import java.util.function.BiConsumer;

/** Labels that are on every sample of the thread that {@link ProfilerApi#createScopedContext} was called on, until they are closed. */
public interface ProfilerScopedContext {
    /** Calls with each key and its value. */
    void forEachLabel(BiConsumer<String, String> consumer);

    /** What the thread said before is there again. */
    void close();
}
