package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;

/**
 * An interpreted method called by a compiled one: calls use adapters, null checks fault, exceptions pass between both kinds
 * of frames.
 */
public final class Interpreted {
    /** The method to exclude from compilation. */
    public static final String METHOD = "io.spanprof.programs.Interpreted::inner";

    private static int sink;

    private int value = 1;

    private Interpreted() {}

    static int inner(Interpreted one, int a, int b, int c, int d, int e, int f, int g, int h) {
        if (h % 8 == 1) {
            throw new IllegalStateException();
        }
        return one.value + a + b + c + d + e + f + g + h;
    }

    static int middle(Interpreted one, int i) {
        try {
            return inner(i % 8 == 0 ? null : one, i, i, i, i, i, i, i, i);
        } catch (NullPointerException | IllegalStateException expected) {
            return 1;
        }
    }

    static void outer(long untilNs) {
        Interpreted one = new Interpreted();
        while (System.nanoTime() < untilNs) {
            for (int i = 0; i < 1000; i++) {
                sink += middle(one, i);
            }
        }
    }

    public static void main(String[] args) {
        Spanprof.start(SpanprofConfig.builder().serviceName("interpreted").sampleRate(1000).fileDirectory(args[0]).build());
        outer(System.nanoTime() + Long.parseLong(args[1]) * 1_000_000);
        Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
