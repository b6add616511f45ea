package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;

/**
 * Throws exceptions through compiled methods; under a debugger's agent each exception deoptimizes the methods it passes.
 */
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

    public static void main(String[] args) {
        Spanprof.start(SpanprofConfig.builder().serviceName("thrown").sampleRate(1000).fileDirectory(args[0]).build());
        outer(System.nanoTime() + Long.parseLong(args[1]) * 1_000_000);
        Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
        System.out.println("stopped " + (Spanprof.stop() && sink != 0 ? 1 : 0));
    }
}
