import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Starts, stops, memory, pauses of a thread that only reads the clock meanwhile, and losses at a stop. Prints Markdown.
 */
final class StartBench {
    private static final int RATE_HZ = 100;
    private static final Map<String, String> BUDGETS = Map.of("first_ms", "≤ 15", "later_ms", "≤ 3", "gap_start_ms", "≤ 20",
            "gap_window_ms", "≤ 20", "memory", "≤ 12", "lost_percent", "0");
    private static final List<String> COLUMNS = List.of(
            "first_ms", "later_ms", "stop_ms", "gap_before_ms", "gap_start_ms", "gap_window_ms", "memory", "lost_percent");

    private StartBench() {}

    public static void main(String[] words) throws Exception {
        Measuring.onEachJava(words, StartBench::all);
    }

    private static void all(Measuring bench, Measuring.Java java) throws Exception {
        int repeats = bench.isShort ? 1 : 5;
        double seconds = bench.isShort ? 0.5 : 1;
        int memoryRepeats = Math.min(repeats, 3);
        Map<String, Map<String, List<Double>>> found = new LinkedHashMap<>();
        CostBench.profilers(java).forEach(profiler -> found.put(profiler, new LinkedHashMap<>()));
        for (int repeat = 0; repeat < repeats; repeat++) {
            for (String profiler : Measuring.shuffled(List.copyOf(found.keySet()))) {
                Map<String, List<Double>> of = found.get(profiler);
                String whole = profiler.equals("pyroscope") ? "pyroscope-with-schedule" : profiler;
                Measuring.Said said = bench.child(java, whole, "StartRun", RATE_HZ, seconds, bench.address);
                said.lines().keySet().forEach(name -> add(of, name, said.all(name)));
                if (repeat < memoryRepeats) {
                    Measuring.Said memory = bench.child(java, profiler, "MemoryRun", RATE_HZ, 2 * seconds, bench.address);
                    add(of, "memory", memory.all("resident_kb"));
                }
                if (repeat == 0 && !profiler.equals("none")) {
                    add(of, "lost_percent", bench.child(java, whole, "LossRun", RATE_HZ, 3 * seconds,
                            bench.folder().resolve(java.name() + profiler)).all("lost_percent"));
                }
            }
        }
        double bareKb = Measuring.median(found.get("none").get("memory"));
        System.out.println("Fresh processes, " + repeats + " of each, alternating (memory: " + memoryRepeats + "): medians (ranges). First"
                + " start: loading and starting. Pauses: the longest gap between two readings of the clock by a thread that only reads"
                + " it; `none` is the machine's noise. Memory: resident memory after two windows, minus that of the process without a"
                + " profiler. Lost: of " + Measuring.format("%.1f", 3 * seconds) + " s of work, the time missing in the profile"
                + " after a stop in the middle of a window.\n");
        List<List<?>> rows = new ArrayList<>();
        found.forEach((profiler, of) -> {
            of.put("memory", of.get("memory").stream().map(kb -> (kb - bareKb) / 1024).toList());
            List<Object> row = new ArrayList<>(List.of(profiler));
            for (String name : COLUMNS) {
                boolean isNothing = profiler.equals("none") && name.endsWith("_ms") && !name.startsWith("gap");
                row.add(isNothing || !of.containsKey(name) ? "–" : cell(of.get(name)));
            }
            rows.add(row);
        });
        List<Object> budgets = new ArrayList<>(List.of("our budget"));
        for (String name : COLUMNS) {
            budgets.add(BUDGETS.getOrDefault(name, "–"));
        }
        rows.add(budgets);
        Measuring.table(List.of("profiler", "first start, ms", "later start, ms", "stop, ms", "longest pause before, ms", "at start, ms",
                "at a window's end, ms", "memory, MB", "lost by stop, %"), rows);
    }

    private static void add(Map<String, List<Double>> to, String name, List<Double> values) {
        to.computeIfAbsent(name, unused -> new ArrayList<>()).addAll(values);
    }

    private static String cell(List<Double> values) {
        double least = values.stream().mapToDouble(value -> value).min().orElse(0);
        double most = values.stream().mapToDouble(value -> value).max().orElse(0);
        String median = Measuring.format("%.1f", Measuring.median(values));
        return values.size() == 1 ? median : median + Measuring.format(" (%.1f … %.1f)", least, most);
    }
}
