package io.spanprof.programs;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Allocates runs of objects of different sizes in a fixed order; prints true bytes and deviation of each order and site. */
public final class AllocatesInOrder {
    /** Objects of a byte array besides its elements, which are a multiple of 8 bytes. */
    private static final int HEADER = 16;
    private static final int INTERVAL = 512 << 10;
    private static volatile Object sink;

    private AllocatesInOrder() {}

    /** Objects of `size` bytes allocated by the method of their site. */
    private record Run(String site, int size, int objects) {}

    private record Order(String name, List<Run> runs) {}

    /** Sizes around those of thread-local allocation buffers, in both directions, in long and short runs. */
    private static final List<Order> ORDERS = List.of(
            new Order("rising", List.of(new Run("small", 1016, 30_000), new Run("middle", 50_016, 300),
                    new Run("large", 400_016, 12), new Run("last", 1024, 8000))),
            new Order("falling", List.of(new Run("large", 400_016, 12), new Run("middle", 50_016, 300),
                    new Run("small", 1016, 3000), new Run("last", 1024, 1067))),
            new Order("middleFirst", List.of(new Run("middle", 50_016, 40), new Run("small", 1016, 2000))),
            new Order("pairs", List.of(new Run("middle", 50_016, 1), new Run("small", 1016, 60))),
            new Order("largePairs", List.of(new Run("large", 400_016, 1), new Run("small", 1016, 400))),
            new Order("tiny", List.of(new Run("middle", 10_016, 1), new Run("small", 112, 100))),
            new Order("three", List.of(new Run("small", 112, 200), new Run("middle", 20_016, 2),
                    new Run("large", 120_016, 1))),
            new Order("middles", List.of(new Run("middle", 30_016, 20), new Run("large", 90_016, 10))),
            new Order("huge", List.of(new Run("small", 1016, 500), new Run("large", 700_016, 2),
                    new Run("last", 2016, 300))),
            new Order("runs", List.of(new Run("large", 200_016, 5), new Run("last", 512, 1000))));

    static void small(int size) {
        sink = new byte[size - HEADER];
    }

    static void middle(int size) {
        sink = new byte[size - HEADER];
    }

    static void large(int size) {
        sink = new byte[size - HEADER];
    }

    static void last(int size) {
        sink = new byte[size - HEADER];
    }

    private static void allocate(Run run) {
        for (int i = 0; i < run.objects; i++) {
            switch (run.site) {
                case "small" -> small(run.size);
                case "middle" -> middle(run.size);
                case "large" -> large(run.size);
                default -> last(run.size);
            }
        }
    }

    /** Each order with each of its sites, {@code order.site}. */
    public static List<String> sites() {
        return ORDERS.stream().flatMap(order -> order.runs.stream().map(run -> order.name + "." + run.site)).toList();
    }

    /** Arguments: directory, MiB to allocate in each order. */
    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("allocates").heap(true).cpuBudget(0).heapInterval(INTERVAL)
                .fileDirectory(args[0]).build());
        long bytes = Long.parseLong(args[1]) << 20;
        Map<String, double[]> sites = new TreeMap<>();
        for (Order order : ORDERS) {
            long inRound = order.runs.stream().mapToLong(run -> (long) run.size * run.objects).sum();
            long rounds = Math.max(bytes / inRound, 1);
            try (Scope scope = Spanprof.tag(Map.of("order", order.name))) {
                for (long round = 0; round < rounds; round++) {
                    order.runs.forEach(AllocatesInOrder::allocate);
                }
            }
            for (Run run : order.runs) {
                double selected = -Math.expm1(-run.size / (double) INTERVAL);
                double objects = (double) rounds * run.objects;
                double variance = objects * run.size * run.size * (1 - selected) / selected;
                sites.put(order.name + "." + run.site, new double[] {objects * run.size, Math.sqrt(variance)});
            }
        }
        Map<String, Object> stats = Spanprof.stats();
        Spanprof.stop();
        sites.forEach((site, truth) -> {
            System.out.println(site + "_bytes " + (long) truth[0]);
            System.out.println(site + "_deviation " + (long) truth[1]);
        });
        stats.forEach((name, value) -> {
            if (name.contains("heap") || name.contains("alloc")) {
                System.out.println(name + " " + value);
            }
        });
    }
}
