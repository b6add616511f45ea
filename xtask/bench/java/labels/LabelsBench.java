import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Cost of labels, and their presence on samples of labelled work, on platform and virtual threads. Prints Markdown. */
final class LabelsBench {
    /** First Java version with virtual threads. */
    private static final int VIRTUAL_THREADS = 21;

    /** A form of labelling; {@code budgetNs} by kind of thread, 0 for none. */
    private record Form(String profiler, String name, String words, int budgetNs, int virtualBudgetNs) {}

    private static final List<Form> FORMS = List.of(
            new Form("none", "none", "the work alone", 0, 0),
            new Form("spanprof", "tag", "`try (Scope s = tag(labels))`, made before, with trace id and span id", 10, 100),
            new Form("spanprof", "tag-inside", "the same inside of another scope", 0, 0),
            new Form("spanprof", "wrapper", "`tagWrapper(labels, work)`, made before", 10, 100),
            new Form("spanprof", "wrapper-map", "`tagWrapper(Map.of(…), work)` of 3 keys", 0, 0),
            new Form("spanprof", "span", "a span becomes active and is left, ids in hex, as OpenTelemetry's storage does", 0, 0),
            new Form("pyroscope", "tag", "`ConstantContext`, made before: an opaque number", 0, 0),
            new Form("pyroscope", "wrapper", "`LabelsWrapper.run(labels, work)`, made before", 0, 0),
            new Form("pyroscope", "wrapper-map", "`LabelsWrapper.run(new LabelsSet(…), work)` of 3 keys", 0, 0),
            new Form("async-profiler", "span", "`Span.start` and `endIfProfiled`: a span to join by afterwards", 0, 0));

    private LabelsBench() {}

    public static void main(String[] words) throws Exception {
        Measuring.onEachJava(words, LabelsBench::costs, LabelsBench::shares);
    }

    private static List<String> threads(Measuring.Java java) {
        return java.isAtLeast(VIRTUAL_THREADS) ? List.of("platform", "virtual") : List.of("platform");
    }

    private record Case(Form form, String thread) {}

    private static void costs(Measuring bench, Measuring.Java java) throws Exception {
        int forks = bench.isShort ? 1 : 3;
        int milliseconds = bench.isShort ? 100 : 500;
        Map<Case, List<Double>> found = new LinkedHashMap<>();
        for (String thread : threads(java)) {
            FORMS.forEach(form -> found.put(new Case(form, thread), new ArrayList<>()));
        }
        for (int fork = 0; fork < forks; fork++) {
            for (Case one : Measuring.shuffled(List.copyOf(found.keySet()))) {
                Measuring.Said said = bench.child(java, one.form.profiler, "LabelCostRun", one.form.name, one.thread, milliseconds,
                        bench.address);
                found.get(one).add(Measuring.median(said.all("ns")));
            }
        }
        System.out.println("Set and cleared around almost no work, with the profiler running at 100 Hz; median over batches of 2,000 in"
                + " each of " + forks + " processes, and of these the median (range). The difference to the work alone is the cost of labels.\n");
        List<List<?>> rows = new ArrayList<>();
        found.forEach((one, values) -> {
            double alone = Measuring.median(found.get(new Case(FORMS.get(0), one.thread)));
            double median = Measuring.median(values);
            int budget = one.thread.equals("virtual") ? one.form.virtualBudgetNs : one.form.budgetNs;
            String range = Measuring.format(" (%.1f … %.1f)", values.stream().mapToDouble(ns -> ns).min().orElse(0),
                    values.stream().mapToDouble(ns -> ns).max().orElse(0));
            rows.add(List.of(one.thread, one.form.profiler, one.form.words, Measuring.format("%.1f", median) + range,
                    Measuring.format("%.1f", median - alone), budget == 0 ? "–" : "≤ " + budget));
        });
        Measuring.table(List.of("thread", "profiler", "how", "ns", "less the work, ns", "budget"), rows);
    }

    private static void shares(Measuring bench, Measuring.Java java) throws Exception {
        int seconds = bench.isShort ? 2 : 15;
        List<List<?>> rows = new ArrayList<>();
        for (String thread : threads(java)) {
            for (String profiler : Measuring.shuffled(List.of("spanprof", "pyroscope"))) {
                Measuring.Said said = bench.child(java, profiler, "LabelShareRun", thread, seconds,
                        bench.folder().resolve(java.name() + thread + profiler));
                double right = said.number("right");
                double all = right + said.number("without") + said.number("wrong");
                boolean isOurs = profiler.equals("spanprof");
                boolean isVirtual = thread.equals("virtual");
                rows.add(List.of(thread, profiler, Measuring.format("%.0f", all), Measuring.format("%.2f", 100 * right / all),
                        isOurs ? isVirtual ? "≥ 99.5" : "≥ 99.9" : "–", said.text("without"), said.text("wrong"), isOurs ? "0" : "–",
                        Measuring.format("%.2f", 100 * said.number("ended") / all), isOurs ? isVirtual ? "≤ 5" : "≤ 0.5" : "–"));
            }
        }
        System.out.println("Requests of three kinds that wait, yield and resume, each kind identified by its own method;"
                + " at 250 Hz for " + seconds + " s. Async-profiler and the flight recorder have no labels on samples. Ended with a reason:"
                + " the callers of a virtual thread that has waited are in the heap until it returns to them.\n");
        Measuring.table(List.of("thread", "profiler", "samples of requests", "right label, %", "budget", "without", "wrong", "budget",
                "stack ended with a reason, %", "budget"), rows);
    }
}
