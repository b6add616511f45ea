package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Allocates until collections have run, requests some, and prints the profiler's count of pauses. */
public final class Collects {
    private static volatile Object sink;

    private Collects() {}

    private static void allocate(int rounds) {
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < rounds; i++) {
            sink = new byte[4096];
            if (i % 100 == 0) {
                kept.add(new byte[2048]);
            }
            if (kept.size() > 10_000) {
                kept.subList(0, 5_000).clear();
            }
        }
    }

    /** Arguments: directory; {@code stop}, or {@code update} to turn the reports on again. */
    public static void main(String[] args) throws Exception {
        allocate(100_000);
        Spanprof.start(SpanprofConfig.builder().serviceName("collects").fileDirectory(args[0]).build());
        System.out.println("started_ns " + System.nanoTime());
        System.out.println("started_ms " + ManagementFactory.getRuntimeMXBean().getUptime());
        for (int round = 0; round < 4; round++) {
            Spanprof.tagWrapper(Collections.singletonMap("endpoint", "/allocate"), () -> {
                allocate(150_000);
                System.gc();
                return null;
            });
        }
        // A concurrent collection ends; it may pause until the reports end.
        Thread.sleep(300);
        Spanprof.update(SpanprofConfig.of(Collections.singletonMap("gc", false)));
        System.out.println("ended_ns " + System.nanoTime());
        System.out.println("ended_ms " + ManagementFactory.getRuntimeMXBean().getUptime());
        Map<String, Object> stats = Spanprof.stats();
        System.out.println("pauses " + stats.get("runtime.java.gc_pauses"));
        System.out.println("pause_ns " + stats.get("runtime.java.gc_pause_ns"));
        if (args[1].equals("stop")) {
            Spanprof.stop();
        }
        allocate(100_000);
        System.gc();
        if (args[1].equals("update")) {
            System.out.println("pauses_afterwards " + Spanprof.stats().get("runtime.java.gc_pauses"));
            Spanprof.update(SpanprofConfig.of(Collections.singletonMap("gc", true)));
            System.gc();
            System.out.println("pauses_again " + Spanprof.stats().get("runtime.java.gc_pauses"));
            Spanprof.stop();
        }
    }
}
