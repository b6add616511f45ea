package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.nio.file.Path;

/** Calls a JNI library without frame pointers ({@code chain.c}), which calls back to Java. */
public final class CallsNative {
    private static long sum;

    private CallsNative() {}

    static native void split(long turns);

    static native void callBack(long turns);

    /** Called by the library. */
    static void back(long turns) {
        for (long i = 0; i < 4 * turns; i++) {
            sum = sum * 2862933555777941757L + i;
        }
    }

    private static void work(long turns) {
        split(turns);
        callBack(turns);
    }

    private static void measured(long milliseconds) {
        for (long end = System.nanoTime() + milliseconds * 1_000_000; System.nanoTime() < end; ) {
            work(200_000);
        }
    }

    public static void main(String[] args) {
        System.load(Path.of(args[1]).toString());
        int rate = Integer.parseInt(args[2]);
        Spanprof.start(SpanprofConfig.builder().serviceName("native").sampleRate(rate).fileDirectory(args[0]).build());
        // Meanwhile the tables of the files in these stacks are built.
        for (long end = System.nanoTime() + 3_000_000_000L; System.nanoTime() < end; ) {
            work(100_000);
        }
        measured(Long.parseLong(args[3]));
        System.out.println("stopped " + (Spanprof.stop() && sum != 0 ? 1 : 0));
    }
}
