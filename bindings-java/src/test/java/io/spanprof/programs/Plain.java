package io.spanprof.programs;

import java.lang.management.ManagementFactory;

/** A program that does not use the profiler, and ends without output. */
public final class Plain {
    private Plain() {}

    static double work(int n) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += Math.sqrt(i + sum);
        }
        return sum;
    }

    public static void main(String[] args) {
        double sum = 0;
        long begun = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - begun < 1_000_000_000L) {
            sum += work(100_000);
        }
        System.out.println("worked " + (sum > 0 ? 1 : 0));
    }
}
