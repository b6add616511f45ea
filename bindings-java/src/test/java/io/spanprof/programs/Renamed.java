package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/** A thread that renames itself between its tasks, and ends. The names differ after the 15 bytes that the kernel keeps. */
public final class Renamed {
    /** The names of the thread, in order. The last one has a character beyond the basic plane. */
    public static final String[] NAMES = {"http-nio-8080-exec-11-reader", "http-nio-8080-exec-11-writer", "idle \uD83D\uDE00"};

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static volatile long sink;

    private Renamed() {}

    static void reads() {
        burn();
    }

    static void writes() {
        burn();
    }

    static void idles() {
        burn();
    }

    private static void burn() {
        long end = THREADS.getCurrentThreadCpuTime() + 300_000_000;
        while (THREADS.getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 50_000; i++) {
                sink = sink * 31 + i;
            }
        }
    }

    /** The folder of the profiles. */
    public static void main(String[] args) throws InterruptedException {
        Spanprof.start(SpanprofConfig.builder().serviceName("renamed").threadLabels(true).fileDirectory(args[0]).build());
        Thread thread = new Thread(() -> {
            reads();
            Thread.currentThread().setName(NAMES[1]);
            writes();
            Thread.currentThread().setName(NAMES[2]);
            idles();
        }, NAMES[0]);
        thread.start();
        thread.join();
        Spanprof.stop();
    }
}
