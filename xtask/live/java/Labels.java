import io.spanprof.ProfileFile;
import io.spanprof.Scope;
import io.spanprof.Spanprof;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;

/**
 * Label of each sample. Each kind of work has its own method, so that the stack identifies it. No label may be wrong; 99.9 % of
 * the samples must be labeled on platform threads, 99.5 % on virtual ones.
 *
 * <pre>Labels platform|virtual|executors SECONDS</pre>
 */
final class Labels {
    private static final int RATE_HZ = 250;
    private static final String SPAN = "b7ad6b7169203331";
    private static final List<String> KINDS = List.of("tea", "milk", "rum");
    private static double sink;

    private Labels() {}

    static double burnTea(int turns) {
        double sum = 0;
        for (int i = 0; i < turns; i++) {
            sum += Math.sqrt(i + sum);
        }
        return sum;
    }

    static double burnMilk(int turns) {
        double sum = 1;
        for (int i = 0; i < turns; i++) {
            sum += Math.sqrt(2 * i + sum);
        }
        return sum;
    }

    static double burnRum(int turns) {
        double sum = 2;
        for (int i = 0; i < turns; i++) {
            sum += Math.sqrt(3 * i + sum);
        }
        return sum;
    }

    private static double burn(String kind) {
        return switch (kind) {
            case "tea" -> burnTea(60_000);
            case "milk" -> burnMilk(60_000);
            default -> burnRum(60_000);
        };
    }

    private static String traceOf(String kind) {
        return "0".repeat(31) + (KINDS.indexOf(kind) + 1);
    }

    private static Map<String, String> labelsOf(String kind) {
        return Map.of("route", "/" + kind, "trace_id", traceOf(kind), "span_id", SPAN);
    }

    /** Work between several kinds of waits: each may resume on another carrier thread. */
    private static double serve(String kind) {
        double sum = 0;
        for (int step = 0; step < 4; step++) {
            sum += burn(kind);
            Threads.giveWayAfter(step);
            try (Scope inner = Spanprof.tag(Map.of("step", String.valueOf(step)))) {
                sum += burn(kind);
            }
        }
        return sum;
    }

    /** Requests on the threads of an executor, each in its own scope. */
    private static void requests(ExecutorService executor, int atOnce, long untilNs) throws Exception {
        while (System.nanoTime() < untilNs) {
            List<Future<Double>> answers = new ArrayList<>();
            for (int number = 0; number < atOnce; number++) {
                String kind = KINDS.get(number % KINDS.size());
                Callable<Double> request = () -> Spanprof.tagWrapper(labelsOf(kind), () -> serve(kind));
                answers.add(executor.submit(request));
            }
            for (Future<Double> answer : answers) {
                sink += answer.get();
            }
        }
    }

    /** Scopes of the submitting thread, work on other threads. */
    private static void handedOver(long untilNs) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        ExecutorService carrying = Spanprof.wrap(pool);
        ExecutorService joining = Spanprof.wrap((ExecutorService) new ForkJoinPool(2));
        while (System.nanoTime() < untilNs) {
            List<Future<Double>> answers = new ArrayList<>();
            for (int number = 0; number < 12; number++) {
                String kind = KINDS.get(number % KINDS.size());
                try (Scope scope = Spanprof.tag(labelsOf(kind))) {
                    Callable<Double> request = () -> serve(kind);
                    answers.add(carrying.submit(request));
                    answers.add(pool.submit(Spanprof.wrap(request)));
                    answers.add(CompletableFuture.supplyAsync(() -> serve(kind), joining)
                            .thenApplyAsync(sum -> sum + serve(kind), carrying));
                    answers.add(CompletableFuture.supplyAsync(Spanprof.wrapSupplier(() -> serve(kind))));
                }
            }
            for (Future<Double> answer : answers) {
                sink += answer.get();
            }
        }
        carrying.shutdown();
        joining.shutdown();
    }

    private static void checkLabels(String kind, long seconds, Path directory) throws Exception {
        Map<String, String> work = Map.of("Labels.burnTea", "tea", "Labels.burnMilk", "milk", "Labels.burnRum", "rum");
        long right = 0;
        long without = 0;
        long wrong = 0;
        for (ProfileFile.Sample sample : ProfileFile.readAll(directory)) {
            String name = null;
            for (ProfileFile.Frame frame : sample.frames()) {
                name = name == null ? work.get(frame.function()) : name;
            }
            if (name == null) {
                continue;
            }
            Map<String, String> labels = sample.labels();
            String route = labels.get("route");
            String trace = labels.get("trace_id");
            if (route == null && trace == null) {
                without += sample.count();
            } else if (("/" + name).equals(route) && traceOf(name).equals(trace) && SPAN.equals(labels.get("span_id"))) {
                right += sample.count();
            } else {
                wrong += sample.count();
            }
        }
        System.out.println(Suite.java() + ", " + kind + ": " + right + " right, " + without + " without, " + wrong + " wrong");
        if (wrong > 0) {
            Suite.fail("samples carry the labels of others");
        }
        if (right < 20 * seconds) {
            Suite.fail("too few samples");
        }
        double allowed = kind.equals("virtual") ? 0.005 : 0.001;
        // A single sample at the border of a scope is ignored.
        if (without > Math.max(1, allowed * (right + without))) {
            Suite.fail("more than " + 100 * allowed + " % of the samples are without labels");
        }
    }

    public static void main(String[] words) throws Exception {
        Path directory = Suite.folder();
        if (!Spanprof.start(Suite.into(directory).sampleRate(RATE_HZ).build())) {
            Suite.fail("it did not start");
        }
        long seconds = Long.parseLong(words[1]);
        long untilNs = System.nanoTime() + seconds * 1_000_000_000L;
        switch (words[0]) {
            case "platform" -> {
                ExecutorService executor = Executors.newFixedThreadPool(8);
                requests(executor, 24, untilNs);
                executor.shutdown();
            }
            case "virtual" -> requests(Threads.virtual(), 300, untilNs);
            default -> handedOver(untilNs);
        }
        System.out.println(Suite.counters(Spanprof.stats(), "runtime.java"));
        if (!Spanprof.stop()) {
            Suite.fail("not everything was delivered");
        }
        checkLabels(words[0], seconds, directory);
    }
}
