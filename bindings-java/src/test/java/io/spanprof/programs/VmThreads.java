package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;

/** A program that keeps the VM's internal threads busy: it causes garbage collections and compilations ({@code -Xcomp}). */
public final class VmThreads {
    private static Object last;

    private VmThreads() {}

    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("vm").sampleRate(250).fileDirectory(args[0]).build());
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            kept.add(new byte[32 * 1024]);
        }
        for (long end = threads.getCurrentThreadCpuTime() + 300_000_000L; threads.getCurrentThreadCpuTime() < end; ) {
            for (int i = 0; i < 10_000; i++) {
                last = new byte[1024 + i % 64];
            }
            System.gc();
        }
        Spanprof.stop();
        System.out.println("kept " + kept.size() + (last == null ? "" : " "));
    }
}
