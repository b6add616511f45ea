import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.zip.Deflater;

/**
 * Known causes of crashes in Java profilers, concurrently, sampled at 2 kHz: class loading and unloading, garbage collection,
 * deoptimization, exceptions, null checks, stack overflows, short-lived threads and virtual threads, labels, executor tasks,
 * restarts of the profiler. The test is that the process survives.
 *
 * <pre>Stress SECONDS [alone]</pre>
 */
public final class Stress {
    /** Share of all walks by our own walker. */
    private static final double MOST_BROKEN = 0.005;
    private static volatile boolean isOver;
    private static volatile Object kept;
    private static volatile double sink;
    private static final Map<String, AtomicLong> DONE = new TreeMap<>();

    private Stress() {}

    /** A class loader that is unloaded with its classes. */
    private static final class Passing extends ClassLoader {
        Class<?> again(byte[] code) {
            return defineClass(null, code, 0, code.length);
        }
    }

    /** Loaded repeatedly, each time as another class of the same name. */
    public static final class Short implements Runnable {
        private double sum;

        @Override
        public void run() {
            for (int i = 0; i < 30_000; i++) {
                sum += inner(i);
            }
        }

        private double inner(int i) {
            return Math.sqrt(i + sum);
        }
    }

    /** A concurrent activity; its exceptions are ignored. */
    private interface Work {
        void run() throws Throwable;
    }

    private interface Shape {
        double area(int i);
    }

    private static byte[] codeOfShort() throws Exception {
        try (InputStream in = Stress.class.getResourceAsStream("Stress$Short.class")) {
            return in.readAllBytes();
        }
    }

    private static void classes(byte[] code) throws Exception {
        Runnable work = (Runnable) new Passing().again(code).getDeclaredConstructor().newInstance();
        for (int i = 0; i < 4; i++) {
            work.run();
        }
    }

    private static void collect() {
        List<Object> garbage = new ArrayList<>();
        for (int i = 0; i < 3000; i++) {
            garbage.add(i % 3 == 0 ? new byte[i] : new Object[] {i, "garbage " + i, garbage});
        }
        kept = garbage.subList(0, 50).toArray();
        if (ThreadLocalRandom.current().nextInt(200) == 0) {
            System.gc();
        }
    }

    private static int deeper(int depth) {
        return depth == 0 ? 0 : 1 + deeper(depth - 1);
    }

    private static int forever(int depth) {
        return forever(depth + 1) + 1;
    }

    private static void recurse() {
        sink += deeper(10 + ThreadLocalRandom.current().nextInt(3000));
        if (ThreadLocalRandom.current().nextInt(20) == 0) {
            try {
                sink += forever(0);
            } catch (StackOverflowError expected) {
                sink += 1;
            }
        }
    }

    private static double area(Shape shape, int i) {
        return shape.area(i);
    }

    private static void fails() {
        int[] four = new int[4];
        for (int i = 0; i < 2000; i++) {
            try {
                sink += area(i % 5 == 0 ? null : number -> number, i);
            } catch (NullPointerException expected) {
                sink += 1;
            }
            try {
                sink += four[i % 8] + new int[i % 6 - 2].length;
            } catch (IndexOutOfBoundsException | NegativeArraySizeException expected) {
                sink += 1;
            }
        }
        try {
            throwing(60);
        } catch (IllegalStateException expected) {
            sink += expected.getStackTrace().length;
        }
    }

    private static void throwing(int depth) {
        if (depth == 0) {
            throw new IllegalStateException("deep");
        }
        try {
            throwing(depth - 1);
        } finally {
            sink += depth;
        }
    }

    /** Code compiled for the receiver types seen so far: a new type deoptimizes it. */
    private static void deoptimise(byte[] code) throws Throwable {
        List<Shape> shapes = new ArrayList<>();
        for (int kind = 0; kind < 4; kind++) {
            int factor = kind;
            shapes.add(kind % 2 == 0 ? i -> i * factor : new Shape() {
                @Override
                public double area(int i) {
                    return Math.sqrt(i * factor);
                }
            });
            for (int i = 0; i < 20_000; i++) {
                sink += area(shapes.get(i % shapes.size()), i);
            }
        }
        Class<?> another = new Passing().again(code);
        MethodHandle run = MethodHandles.lookup().findVirtual(Runnable.class, "run", MethodType.methodType(void.class));
        run.invoke((Runnable) another.getDeclaredConstructor().newInstance());
    }

    private static void text() {
        String text = "the quick brown fox jumps over the lazy dog ".repeat(30);
        sink += Pattern.compile("(\\w+) (\\w+)").matcher(text).replaceAll("$2 $1").split("[aeiou]+").length;
        sink += String.format("%s %d %.3f", text, text.length(), sink).hashCode();
        sink += IntStream.range(0, 3000).mapToObj(Integer::toString).filter(one -> one.endsWith("7")).count();
        Deflater deflater = new Deflater();
        deflater.setInput(text.getBytes());
        deflater.finish();
        sink += deflater.deflate(new byte[2000]);
        deflater.end();
    }

    private static void threads() throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            Thread thread = new Thread(() -> Spanprof.tagWrapper(Map.of("thread", "brief"), () -> collect()));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** Tasks of many virtual threads that wait and resume on other carriers, half of them labeled. */
    private static void virtualThreads(ExecutorService executor) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        Semaphore few = new Semaphore(20);
        for (int i = 0; i < 200; i++) {
            int number = i;
            Runnable task = () -> {
                few.acquireUninterruptibly();
                try {
                    sink += deeper(number);
                    Thread.sleep(0, 200_000);
                    synchronized (few) {
                        sink += 1;
                    }
                    Thread.yield();
                    throwing(20);
                } catch (IllegalStateException | InterruptedException expected) {
                    sink += 1;
                } finally {
                    few.release();
                }
            };
            Runnable labelled = () -> Spanprof.tagWrapper(Map.of("task", "" + number % 10), task);
            all.add(executor.submit(number % 2 == 0 ? labelled : task));
        }
        for (Future<?> one : all) {
            one.get();
        }
    }

    private static void tasks(ExecutorService pool) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        try (Scope scope = Spanprof.tag(Map.of("work", "tasks"))) {
            ExecutorService carrying = Spanprof.wrap(pool);
            for (int i = 0; i < 50; i++) {
                all.add(carrying.submit(() -> sink += deeper(50)));
            }
            sink += IntStream.range(0, 20_000).parallel().mapToDouble(Math::sqrt).sum();
        }
        for (Future<?> one : all) {
            one.get();
        }
    }

    /** Repeats one activity under a label until the end. */
    private static Thread again(String name, Work work) {
        AtomicLong done = new AtomicLong();
        DONE.put(name, done);
        Thread thread = new Thread(() -> {
            while (!isOver) {
                try (Scope scope = Spanprof.tag(Map.of("work", name, "turn", String.valueOf(done.get() % 50)))) {
                    work.run();
                    done.incrementAndGet();
                } catch (OutOfMemoryError full) {
                    kept = null;
                } catch (Throwable failure) {
                    failure.printStackTrace();
                    Suite.fail("the profiled program failed: " + name);
                }
            }
        }, name);
        thread.start();
        return thread;
    }

    public static void main(String[] words) throws Exception {
        long untilNs = System.nanoTime() + Long.parseLong(words[0]) * 1_000_000_000L;
        SpanprofConfig settings =
                Suite.into(Suite.folder()).sampleRate(2000).wall(true).wallRate(200).set("uploadInterval", 1).build();
        boolean isProfiled = words.length == 1;
        if (isProfiled && !Spanprof.start(settings)) {
            Suite.fail("it did not start");
        }
        byte[] code = codeOfShort();
        ExecutorService pool = Executors.newFixedThreadPool(3);
        List<Thread> all = new ArrayList<>(List.of(
                again("classes", () -> classes(code)), again("collect", Stress::collect), again("recurse", Stress::recurse),
                again("fails", Stress::fails), again("deoptimise", () -> deoptimise(code)), again("text", Stress::text),
                again("threads", Stress::threads), again("tasks", () -> tasks(pool))));
        if (Runtime.version().feature() >= 21) {
            ExecutorService executor = Threads.virtual();
            all.add(again("virtual", () -> virtualThreads(executor)));
        }
        long cycles = 0;
        long samples = 0;
        Map<String, Long> told = new TreeMap<>();
        while (System.nanoTime() < untilNs) {
            Thread.sleep(500 + ThreadLocalRandom.current().nextInt(1000));
            if (!isProfiled) {
                continue;
            }
            // The drain thread has not counted the latest samples.
            Spanprof.flush(java.time.Duration.ofSeconds(30));
            Map<String, Object> stats = Spanprof.stats();
            samples += (Long) stats.get("samples.cpu");
            Suite.counters(stats, "dropped.").forEach((name, value) -> told.merge(name, (Long) value, Long::sum));
            // Counted since the start of the process.
            Suite.counters(stats, "runtime.java.walks").forEach((name, value) -> told.put(name, (Long) value));
            told.put("asked", (Long) stats.get("runtime.java.threads_asked"));
            Spanprof.stop();
            if (!Spanprof.start(settings)) {
                Suite.fail("it did not start again");
            }
            cycles++;
        }
        isOver = true;
        for (Thread thread : all) {
            thread.join(60_000);
            if (thread.isAlive()) {
                Suite.fail(thread.getName() + " hangs");
            }
        }
        pool.shutdown();
        if (!isProfiled) {
            return;
        }
        Spanprof.stop();
        double cpuSeconds = ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime() / 1e9;
        long unloaded = ManagementFactory.getClassLoadingMXBean().getUnloadedClassCount();
        System.out.printf("%s: %d samples in %.1f s of CPU, %d cycles, %d classes unloaded, %s, %s%n",
                Suite.java(), samples, cpuSeconds, cycles, unloaded, DONE, told);
        // On a loaded machine CPU time is less than elapsed time.
        if (samples < 20 * cpuSeconds) {
            Suite.fail("only " + samples + " samples in " + cpuSeconds + " s of CPU");
        }
        long broken = told.getOrDefault("runtime.java.walks_broken", 0L);
        // Minimum number of walks: one per sample, one per wall-clock response.
        if (broken > MOST_BROKEN * (samples + told.get("asked"))) {
            Suite.fail(broken + " stacks of " + samples + " samples could not be followed to their root");
        }
    }
}
