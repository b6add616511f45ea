package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;

/** Exceptions through compiled methods; under a debugger's agent each of them deoptimizes the methods that it passes. */
public final class Deoptimized {
    private static long sink;

    private Deoptimized() {}

    static int inner(int depth, int i) {
        if (depth == 0) {
            if (i % 3 == 0) {
                throw new IllegalStateException();
            }
            return i;
        }
        return inner(depth - 1, i) + 1;
    }

    static int middle(int i) {
        try {
            return inner(10, i);
        } catch (IllegalStateException expected) {
            return -1;
        }
    }

    static void outer(long untilNs) {
        while (System.nanoTime() < untilNs) {
            for (int i = 0; i < 100; i++) {
                sink += middle(i);
            }
        }
    }

    public static void main(String[] words) {
        Spanprof.start(SpanprofConfig.builder().serviceName("thrown").sampleRate(1000).fileDirectory(words[0]).build());
        outer(System.nanoTime() + Long.parseLong(words[1]) * 1_000_000);
        Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
        System.out.println("stopped " + (Spanprof.stop() && sink != 0 ? 1 : 0));
    }
}
