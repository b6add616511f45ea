package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.List;

/** Leaks about 100 MB/s until it is killed. */
public final class Leaks {
    private static final int SIZE = 50_000;
    private static final List<byte[]> CACHE = new ArrayList<>();
    private static final List<byte[]> KEPT = new ArrayList<>();
    private static volatile Object sink;

    private Leaks() {}

    static void fillCache() {
        for (int i = 0; i < 100; i++) {
            CACHE.add(new byte[SIZE]);
        }
    }

    static void remember() {
        KEPT.add(new byte[SIZE]);
    }

    static void churn() {
        sink = new byte[SIZE];
    }

    /** Arguments: directory of the heap at its peak. */
    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("leaky").heapPeakDirectory(args[0])
                .fileDirectory(args[0] + "/profiles").build());
        fillCache();
        while (true) {
            // Garbage is in use until the next collection: less than what is kept, so that it is never first.
            for (int i = 0; i < 20; i++) {
                remember();
                if (i % 4 == 0) {
                    churn();
                }
            }
            Thread.sleep(10);
        }
    }
}
