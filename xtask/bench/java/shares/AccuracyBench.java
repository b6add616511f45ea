import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Shares and totals of a mix against the thread's CPU clock, at several rates. Also of periodic work, with and without a busy
 * program on the same processor, of work in native code and of inlined methods. Each run has its own processor, except for the
 * busy program. Prints Markdown.
 */
final class AccuracyBench {
    /** Target number of samples in a run, within its limit of CPU seconds. */
    private static final int SAMPLES = 5_000;
    private static final double LONGEST_CPU_SECONDS = 10;
    /** Prefix of a mix: runs beside a busy program on the same processor. */
    private static final String CONTENDED = "contended-";
    /** Cycle of a periodic program in milliseconds of CPU time; 4 is the kernel's tick at 250 Hz. */
    private static final List<Integer> CYCLES_MS = List.of(1, 4, 10, 100);
    private static final double NATIVE_BUDGET_POINTS = 2;
    private static final double TOTAL_BUDGET_PERCENT = 1;
    private static final double BROKEN_BUDGET_PERCENT = 0.5;

    private record Run(String kind, String profiler, int rate) {
        boolean isOurs() {
            return profiler.startsWith("spanprof");
        }
    }

    /** Result of a run; errors in points of the whole. */
    private record Result(double worst, double bound, double totalPercent, Measuring.Said said, String shares, String truth) {}

    private AccuracyBench() {}

    public static void main(String[] words) throws Exception {
        try (Measuring bench = new Measuring(words)) {
            for (Measuring.Java java : bench.javas) {
                System.out.println("### Java " + java.name() + "\n");
                List<Run> runs = runs(java, bench.isShort);
                List<Result> results = results(bench, java, runs);
                table(runs, results, "mix", "A mix of about 50, 30 and 20 %, 20 frames deep; true shares by the thread's CPU clock. Total:"
                        + " the work's CPU time in the profile; for profilers without a time per sample, samples times the configured"
                        + " period.");
                table(runs, results, Work.CYCLE, "A periodic program: a part of 30 % of each cycle of CPU time; `contended`:"
                        + " beside a busy program on the same processor.");
                table(runs, results, "native", "Copying, deflate and checksums: stubs and native code of the VM or its libraries.");
                table(runs, results, "inlined", "Three small methods that the compiler inlines into their caller; shares of the"
                        + " caller's total time; true shares by each alone in its own loop, compiled separately: exact to one or two points.");
            }
        }
    }

    private static List<Run> runs(Measuring.Java java, boolean isShort) {
        List<String> all = new ArrayList<>(CostBench.profilers(java));
        all.remove("none");
        List<Run> runs = new ArrayList<>();
        for (int rate : new int[] {100, 250, 1000}) {
            all.forEach(profiler -> runs.add(new Run("mix", profiler, rate)));
            if (!isShort) {
                runs.add(new Run("mix", "spanprof", rate));
            }
        }
        runs.add(new Run("mix", "spanprof-with-timers", 1000));
        runs.add(new Run("mix", "async-profiler-with-ctimer", 1000));
        for (String beside : List.of("", CONTENDED)) {
            for (int cycle : CYCLES_MS) {
                for (int rate : new int[] {100, 250, 1000}) {
                    for (int repeat = 0; repeat < (isShort ? 1 : 2); repeat++) {
                        runs.add(new Run(beside + Work.CYCLE + cycle, "spanprof", rate));
                    }
                }
            }
        }
        for (String kind : List.of("native", "inlined")) {
            all.forEach(profiler -> runs.add(new Run(kind, profiler, 250)));
        }
        return runs;
    }

    /** As many runs at once as there are processors. */
    private static List<Result> results(Measuring bench, Measuring.Java java, List<Run> runs) throws Exception {
        Result[] results = new Result[runs.size()];
        ConcurrentLinkedQueue<Integer> waiting = new ConcurrentLinkedQueue<>();
        for (int number = 0; number < results.length; number++) {
            waiting.add(number);
        }
        AtomicReference<Exception> failed = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int processor = 0; processor < Runtime.getRuntime().availableProcessors(); processor++) {
            int own = processor;
            Thread thread = new Thread(() -> {
                for (Integer number = waiting.poll(); number != null && failed.get() == null; number = waiting.poll()) {
                    try {
                        results[number] = result(bench, java, runs.get(number), number, own);
                    } catch (Exception failure) {
                        failed.set(failure);
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        return Arrays.asList(results);
    }

    private static Result result(Measuring bench, Measuring.Java java, Run run, int number, int processor) throws Exception {
        double seconds = bench.isShort ? 1 : Math.min((double) SAMPLES / run.rate, LONGEST_CPU_SECONDS);
        Process busy = run.kind.startsWith(CONTENDED) ? busyProgram(processor) : null;
        Measuring.Said said;
        try {
            said = bench.childOn(processor, java, run.profiler, "AccuracyRun", run.kind.replace(CONTENDED, ""), run.rate, seconds,
                    bench.folder().resolve(java.name() + "-" + number));
        } finally {
            if (busy != null) {
                busy.destroyForcibly();
            }
        }
        List<Double> truth = said.all("truth_ns");
        List<Double> seen = said.all("seen_ns");
        double all = truth.stream().mapToDouble(ns -> ns).sum();
        double allSeen = run.kind.equals("inlined") ? said.number("caller_seen_ns") : seen.stream().mapToDouble(ns -> ns).sum();
        double worst = 0;
        for (int part = 0; part < truth.size(); part++) {
            worst = Math.max(worst, 100 * Math.abs(seen.get(part) / allSeen - truth.get(part) / all));
        }
        double bound = 300 * Math.sqrt(0.25 / Math.max(1, said.number("samples")));
        double total = 100 * (said.number("whole_seen_ns") / said.number("whole_ns") - 1);
        return new Result(worst, bound, total, said, shares(seen, allSeen), shares(truth, all));
    }

    private static Process busyProgram(int processor) throws Exception {
        return new ProcessBuilder("taskset", "--cpu-list", String.valueOf(processor), "sh", "-c", "while :; do :; done").start();
    }

    private static String shares(List<Double> ns, double all) {
        return String.join(" / ", ns.stream().map(one -> Measuring.format("%.1f", 100 * one / all)).toList());
    }

    private static void table(List<Run> runs, List<Result> results, String kind, String words) {
        System.out.println(words + "\n");
        List<List<?>> rows = new ArrayList<>();
        for (int number = 0; number < results.size(); number++) {
            Run run = runs.get(number);
            boolean isPeriodic = kind.equals(Work.CYCLE) && run.kind.contains(kind);
            if (!isPeriodic && !run.kind.equals(kind)) {
                continue;
            }
            Result result = results.get(number);
            boolean isNative = kind.equals("native");
            String budget = isNative ? "≤ " + NATIVE_BUDGET_POINTS : "≤ " + Measuring.format("%.2f", result.bound);
            rows.add(List.of(isPeriodic ? run.kind : run.profiler, run.rate, result.said.text("samples"), result.shares, result.truth,
                    Measuring.format("%.2f", result.worst), run.isOurs() ? budget : "–",
                    Measuring.format("%+.2f", result.totalPercent), run.isOurs() ? "± " + TOTAL_BUDGET_PERCENT : "–",
                    Measuring.format("%.2f", 100 * result.said.number("broken")), run.isOurs() ? "≤ " + BROKEN_BUDGET_PERCENT : "–",
                    result.said.text("frames_without_line") + " of " + result.said.text("frames")));
        }
        Measuring.table(List.of(kind.equals(Work.CYCLE) ? "work" : "profiler", "Hz", "samples (ours: periods)", "shares shown, %", "really", "worst error, points",
                kind.equals("native") ? "budget" : "budget: 3 standard errors", "total, % off", "budget", "broken stacks, %", "budget",
                "Java frames without line (native methods have none)"), rows);
    }
}
