package io.spanprof.programs;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** Short loops of methods that are inlined next to each other into one method, each run under a label with its name. */
public final class Inlined {
    /** The names of the methods and the values of the labels. */
    public static final List<String> KINDS = Arrays.asList("roots", "quotients", "sums", "table", "hash", "branches");

    private static final int[] TABLE = new int[64];
    private static volatile double sink;

    private Inlined() {}

    static double roots(int n) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += Math.sqrt(i + sum);
        }
        return sum;
    }

    static double quotients(int n) {
        double sum = 1;
        for (int i = 0; i < n; i++) {
            sum += (i ^ 3) / (sum + 1);
        }
        return sum;
    }

    static double sums(int n) {
        double sum = 1;
        for (int i = 0; i < n; i++) {
            sum = sum * 0.99 + i % 7;
        }
        return sum;
    }

    static double table(int n) {
        int sum = 1;
        for (int i = 0; i < n; i++) {
            sum += TABLE[(i + sum) & 63] ^ i;
        }
        return sum;
    }

    static double hash(int n) {
        long hash = 1;
        for (int i = 0; i < n; i++) {
            hash = hash * 31 + (hash >>> 7);
        }
        return hash;
    }

    static double branches(int n) {
        double sum = 1;
        for (int i = 0; i < n; i++) {
            if ((i & 5) == 0) {
                sum += 2;
            } else {
                sum -= 0.5;
            }
        }
        return sum;
    }

    private static double one(int kind, int n) {
        switch (kind) {
            case 0:
                return roots(n);
            case 1:
                return quotients(n);
            case 2:
                return sums(n);
            case 3:
                return table(n);
            case 4:
                return hash(n);
            default:
                return branches(n);
        }
    }

    private static double all(int kind) {
        double sum = 0;
        for (int round = 0; round < 2000; round++) {
            sum += one(kind, 20 + (round & 31));
        }
        return sum;
    }

    public static void main(String[] args) {
        Spanprof.start(SpanprofConfig.builder().serviceName("inlined").sampleRate(1000).fileDirectory(args[0]).build());
        long untilNs = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000;
        for (int turn = 0; System.nanoTime() < untilNs; turn++) {
            int kind = turn % KINDS.size();
            try (Scope scope = Spanprof.tag(Collections.singletonMap("kind", KINDS.get(kind)))) {
                sink += all(kind);
            }
        }
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
