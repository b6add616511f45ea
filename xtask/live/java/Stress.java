import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Known causes of crashes in Java profilers, concurrently, with every profile on, small intervals, changes of the
 * configuration and restarts: class loading and unloading, garbage collection, deoptimization, exceptions, null checks, stack
 * overflows, contended locks, references, short-lived threads and virtual threads, labels, executor tasks. The test is that
 * the process survives and computes what it computes without a profiler.
 *
 * <pre>Stress SECONDS [alone]</pre>
 */
public final class Stress {
    /** Share of all walks by our own walker. */
    private static final double MOST_BROKEN = 0.005;
    /** Arguments of the work, so that every result is known before the start. */
    private static final int NUMBERS = 4;
    /** Changes of the running profiler, in this order. */
    private static final List<SpanprofConfig> CHANGES = Arrays.asList(
            change("heapInterval", 1024), change("lockThreshold", 0.001), change("heap", false), change("offCpu", false),
            change("wall", false), change("heap", true), change("lock", false), change("gc", false), change("threads", false),
            change("cpu", false), change("lock", true), change("lockThreshold", 0.0), change("gc", true),
            change("threads", true), change("offCpu", true), change("wall", true), change("cpu", true),
            change("heapInterval", 524_288), change("heapInterval", 16_384));
    private static final int CHANGES_PER_RUN = 7;
    private static volatile boolean isOver;
    private static final Map<String, AtomicLong> DONE = new TreeMap<>();

    private Stress() {}

    private static SpanprofConfig change(String key, Object value) {
        return SpanprofConfig.builder().set(key, value).build();
    }

    private static Map<String, String> labels(String name, long turn) {
        Map<String, String> labels = new TreeMap<>();
        labels.put("work", name);
        labels.put("turn", String.valueOf(turn % 50));
        return labels;
    }

    /** Repeats one activity under a label until the end, and compares its results. */
    private static Thread again(String name, StressWork.Work work, long[] expected) {
        AtomicLong done = new AtomicLong();
        DONE.put(name, done);
        Thread thread = new Thread(() -> {
            while (!isOver) {
                int number = ThreadLocalRandom.current().nextInt(NUMBERS);
                try (Scope scope = Spanprof.tag(labels(name, done.get()))) {
                    long found = work.run(number);
                    if (found != expected[number]) {
                        Suite.fail(name + "(" + number + ") is " + found + ", not " + expected[number]);
                    }
                    done.incrementAndGet();
                } catch (OutOfMemoryError full) {
                    System.err.println(name + ": " + full);
                } catch (Throwable failure) {
                    failure.printStackTrace();
                    Suite.fail("the profiled program failed: " + name);
                }
            }
        }, name);
        thread.start();
        return thread;
    }

    /** Every other run has the smallest live set, which is thinned all the time. */
    private static SpanprofConfig settings(Path folder, long run) {
        return Suite.into(folder).sampleRate(2000).wall(true).wallRate(200).set("uploadInterval", 1)
                .set("profiles", "all").set("heapInterval", 16_384).set("lockThreshold", 0.0)
                .set("heapLiveSamples", run % 2 == 0 ? 65_536 : 1024).build();
    }

    private static final class Counts {
        private final Map<String, Long> total = new TreeMap<>();
        private final Map<String, Long> last = new TreeMap<>();

        /** Some counters start with the process, others with each run. */
        void add(Map<String, Object> stats) {
            stats.forEach((name, value) -> {
                boolean isCount = name.matches("samples\\..*|dropped\\..*|heap\\.(samples|thinned).*|internal\\.panics"
                        + "|runtime\\.java\\.(walks|threads_asked).*");
                if (isCount && value instanceof Long) {
                    long now = (Long) value;
                    long before = last.getOrDefault(name, 0L);
                    total.merge(name, now >= before ? now - before : now, Long::sum);
                    last.put(name, now);
                }
            });
        }

        void beginRun() {
            last.keySet().removeIf(name -> name.startsWith("samples."));
        }

        long of(String name) {
            return total.getOrDefault(name, 0L);
        }
    }

    public static void main(String[] words) throws Exception {
        StressWork works = new StressWork();
        Map<String, long[]> expected = new TreeMap<>();
        for (Map.Entry<String, StressWork.Work> work : works.all().entrySet()) {
            long[] results = new long[NUMBERS];
            for (int number = 0; number < NUMBERS; number++) {
                try {
                    results[number] = work.getValue().run(number);
                } catch (Throwable failure) {
                    throw new IllegalStateException(work.getKey(), failure);
                }
            }
            expected.put(work.getKey(), results);
        }
        Path folder = Suite.folder();
        long untilNs = System.nanoTime() + Long.parseLong(words[0]) * 1_000_000_000L;
        boolean isProfiled = words.length == 1;
        if (isProfiled && !Spanprof.start(settings(folder, 0))) {
            Suite.fail("it did not start");
        }
        List<Thread> all = new ArrayList<>();
        works.all().forEach((name, work) -> all.add(again(name, work, expected.get(name))));
        long cycles = 0;
        Counts counts = new Counts();
        for (int change = 0; System.nanoTime() < untilNs; change++) {
            Thread.sleep(100 + ThreadLocalRandom.current().nextInt(200));
            if (!isProfiled) {
                continue;
            }
            Spanprof.update(CHANGES.get(change % CHANGES.size()));
            if (change % CHANGES_PER_RUN == CHANGES_PER_RUN - 1) {
                // The drain thread has not counted the latest samples.
                Spanprof.flush(Duration.ofSeconds(30));
                counts.add(Spanprof.stats());
                Spanprof.stop();
                counts.beginRun();
                cycles++;
                if (!Spanprof.start(settings(folder, cycles))) {
                    Suite.fail("it did not start again");
                }
            }
        }
        isOver = true;
        for (Thread thread : all) {
            thread.join(60_000);
            if (thread.isAlive()) {
                Thread.getAllStackTraces().forEach((one, stack) -> System.err.println(one + " " + Arrays.asList(stack)));
                Suite.fail(thread.getName() + " hangs");
            }
        }
        works.end();
        double cpuSeconds = ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime() / 1e9;
        if (!isProfiled) {
            System.out.printf("%s alone: %.1f s of CPU, %s%n", Suite.java(), cpuSeconds, DONE);
            return;
        }
        Spanprof.flush(Duration.ofSeconds(30));
        counts.add(Spanprof.stats());
        Spanprof.stop();
        long unloaded = ManagementFactory.getClassLoadingMXBean().getUnloadedClassCount();
        long samples = counts.of("samples.cpu");
        counts.total.values().removeIf(value -> value == 0);
        System.out.printf("%s: %.1f s of CPU, %d cycles, %d classes unloaded, results %s, counts %s%n",
                Suite.java(), cpuSeconds, cycles, unloaded, DONE, counts.total);
        // On a loaded machine CPU time is less than elapsed time.
        if (samples < 20 * cpuSeconds) {
            Suite.fail("only " + samples + " samples in " + cpuSeconds + " s of CPU");
        }
        // Minimum number of walks: one per sample, one per wall-clock response.
        long broken = counts.of("runtime.java.walks_broken");
        if (broken > MOST_BROKEN * (samples + counts.of("runtime.java.threads_asked"))) {
            Suite.fail(broken + " stacks of " + samples + " samples could not be followed to their root");
        }
        for (String name : Arrays.asList("samples.wall", "samples.off_cpu", "samples.submitted", "heap.samples")) {
            // Java 8 does not report allocations.
            if (counts.of(name) == 0 && !(name.equals("heap.samples") && Suite.version() < 11)) {
                Suite.fail("no " + name);
            }
        }
        if (counts.of("internal.panics") > 0) {
            Suite.fail("panics inside the profiler");
        }
    }
}
