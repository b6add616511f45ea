package io.spanprof.programs;

import io.spanprof.Labels;
import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;

/** Three pieces of work, one of them in an inlined method; measures their CPU time with this thread's clock. */
public final class Shares {
    private static double sink;

    private Shares() {}

    static double roots(int n) {
        double sum = 0;
        for (int i = 1; i < n; i++) {
            sum += inlined(i);
        }
        return sum;
    }

    static double inlined(int i) {
        return Math.sqrt(i) / (i + 1.0);
    }

    static long table(int n) {
        Map<Integer, Integer> map = new HashMap<>();
        long hits = 0;
        for (int i = 0; i < n; i++) {
            map.put(i & 1023, i);
            hits += map.get(i * 7 & 1023) == null ? 0 : 1;
        }
        return hits;
    }

    static int text(int n) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < n; i++) {
            text.append(i % 10);
        }
        return text.toString().length();
    }

    private static long clock() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    /** Runs work for at least this CPU time; returns the measured time. */
    private static long spend(Runnable work, long nanoseconds) {
        long begun = clock();
        do {
            work.run();
        } while (clock() - begun < nanoseconds);
        return clock() - begun;
    }

    public static void main(String[] args) {
        long unit = Long.parseLong(args[2]) * 1_000_000;
        SpanprofConfig.Builder settings = SpanprofConfig.builder()
                .serviceName("shares").sampleRate(Integer.parseInt(args[1])).fileDirectory(args[0]);
        if (args.length > 3) {
            settings.set("stackWalk", args[3]).set("profiles", "all");
        }
        Spanprof.start(settings.build());
        Labels labels = Labels.of("endpoint", "/text");
        Map<String, String> twoLabels = new HashMap<>();
        twoLabels.put("endpoint", "/table");
        twoLabels.put("round", "odd");
        long[] measured = new long[3];
        for (int round = 0; round < 10; round++) {
            measured[0] += spend(() -> sink += roots(20_000), unit * 5);
            try (Scope scope = Spanprof.tag(twoLabels)) {
                measured[1] += spend(() -> sink += table(4_000), unit * 3);
            }
            measured[2] += Spanprof.tagWrapper(labels, () -> spend(() -> sink += text(20_000), unit * 2));
        }
        System.out.println("roots " + measured[0]);
        System.out.println("table " + measured[1]);
        System.out.println("text " + measured[2]);
        Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
