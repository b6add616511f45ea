package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Allocates known sizes at three sites; prints the true bytes and objects of each and the variance of their estimates. */
public final class Allocates {
    /** Objects of a byte array besides its elements, which are a multiple of 8 bytes. */
    private static final int HEADER = 16;
    /** Sizes of each site, 16 bytes to 4 MiB; each size gets the same number of bytes. */
    private static final int[][] SIZES = {
        {16, 24, 40, 64, 256}, {1024, 4096, 16 << 10, 64 << 10}, {256 << 10, 1 << 20, 4 << 20},
    };
    private static final int[] SHARES = {60, 30, 10};
    private static volatile Object sink;

    private Allocates() {}

    static void small(int size) {
        sink = new byte[size - HEADER];
    }

    static void medium(int size) {
        sink = new byte[size - HEADER];
    }

    static void large(int size) {
        sink = new byte[size - HEADER];
    }

    /** Allocates about the same number of bytes in each round, so that sizes are mixed. */
    private static long[] allocate(int site, long bytes, double interval) {
        long[] truth = new long[3];
        for (int size : SIZES[site]) {
            long objects = bytes / SIZES[site].length / size;
            for (long i = 0; i < objects; i++) {
                if (site == 0) {
                    small(size);
                } else if (site == 1) {
                    medium(size);
                } else {
                    large(size);
                }
            }
            double selected = -Math.expm1(-size / interval);
            truth[0] += objects * size;
            truth[1] += objects;
            truth[2] += (long) (objects * (double) size * size * (1 - selected) / selected);
        }
        return truth;
    }

    /** Arguments: directory, interval in bytes, MiB to allocate, walk, platform threads. */
    public static void main(String[] args) throws Exception {
        int interval = Integer.parseInt(args[1]);
        long bytes = Long.parseLong(args[2]) << 20;
        int workers = Integer.parseInt(args[4]);
        int rounds = 20;
        Spanprof.start(SpanprofConfig.builder().serviceName("allocates").heap(true).cpuBudget(0).heapInterval(interval)
                .fileDirectory(args[0]).set("stackWalk", args[3]).build());
        long[][] truth = new long[3][3];
        List<Thread> threads = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            Thread thread = new Thread(() -> {
                for (int round = 0; round < rounds; round++) {
                    for (int site = 0; site < 3; site++) {
                        long[] part = allocate(site, bytes / workers / rounds * SHARES[site] / 100, interval);
                        synchronized (truth) {
                            for (int i = 0; i < 3; i++) {
                                truth[site][i] += part[i];
                            }
                        }
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Map<String, Object> stats = Spanprof.stats();
        Spanprof.stop();
        String[] names = {"small", "medium", "large"};
        for (int site = 0; site < 3; site++) {
            System.out.println(names[site] + "_bytes " + truth[site][0]);
            System.out.println(names[site] + "_objects " + truth[site][1]);
            System.out.println(names[site] + "_deviation " + (long) Math.sqrt(truth[site][2]));
        }
        stats.forEach((name, value) -> {
            if (name.contains("heap") || name.contains("alloc") || name.contains("walks_")) {
                System.out.println(name + " " + value);
            }
        });
    }
}
