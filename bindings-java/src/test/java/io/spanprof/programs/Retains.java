package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.List;

/** Keeps some objects and drops as many, before a collection. */
public final class Retains {
    private static final int SIZE = 1024;
    private static final int OBJECTS = 100 << 10;
    private static volatile Object sink;

    private Retains() {}

    static byte[] kept() {
        return new byte[SIZE - 16];
    }

    static void dropped() {
        sink = new byte[SIZE - 16];
    }

    /** Arguments: directory. */
    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("retains").heap(true).cpuBudget(0).heapInterval(65_536)
                .fileDirectory(args[0]).build());
        List<byte[]> all = new ArrayList<>();
        for (int i = 0; i < OBJECTS; i++) {
            all.add(kept());
            dropped();
        }
        sink = null;
        System.gc();
        System.out.println("references " + Spanprof.stats().get("runtime.java.live_references"));
        Spanprof.stop();
        System.out.println("bytes " + (long) all.size() * SIZE);
        Spanprof.start(SpanprofConfig.builder().serviceName("retains").heap(false).fileDirectory(args[0]).build());
        System.out.println("references_after " + Spanprof.stats().get("runtime.java.live_references"));
        Spanprof.stop();
    }
}
