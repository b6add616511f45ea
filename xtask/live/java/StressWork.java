import io.spanprof.Scope;
import io.spanprof.Spanprof;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.ref.SoftReference;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.regex.Pattern;
import java.util.stream.LongStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/** Work of {@link Stress}: each function computes a number from its argument, and always the same one. */
final class StressWork {
    private static volatile Object kept;
    private final byte[] code;
    private final ExecutorService pool = Executors.newFixedThreadPool(3);
    /** Null before Java 21. */
    private final ExecutorService virtual;

    StressWork() throws Exception {
        try (InputStream in = StressWork.class.getResourceAsStream("StressWork$Short.class")) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            for (int next = in.read(); next >= 0; next = in.read()) {
                out.write(next);
            }
            code = out.toByteArray();
        }
        virtual = Suite.version() >= 21 ? Threads.virtual() : null;
    }

    /** One function. */
    interface Work {
        long run(int number) throws Throwable;
    }

    /** All functions by name. */
    Map<String, Work> all() {
        Map<String, Work> all = new LinkedHashMap<>();
        all.put("classes", this::classes);
        all.put("collect", StressWork::collect);
        all.put("allocate", StressWork::allocate);
        all.put("references", StressWork::references);
        all.put("recurse", StressWork::recurse);
        all.put("fails", StressWork::fails);
        all.put("deoptimise", this::deoptimise);
        all.put("text", StressWork::text);
        all.put("threads", StressWork::threads);
        all.put("contend", number -> contend(number, null));
        all.put("tasks", this::tasks);
        if (virtual != null) {
            all.put("virtual", this::virtualThreads);
            all.put("contendVirtual", number -> contend(number, virtual));
        }
        return all;
    }

    void end() {
        kept = null;
        pool.shutdown();
        if (virtual != null) {
            virtual.shutdown();
        }
    }

    /** A class loader that is unloaded with its classes. */
    private static final class Passing extends ClassLoader {
        Class<?> again(byte[] code) {
            return defineClass(null, code, 0, code.length);
        }
    }

    /** Loaded repeatedly, each time as another class of the same name. */
    public static final class Short implements Runnable, java.util.function.LongSupplier {
        private long sum;

        @Override
        public void run() {
            for (int i = 0; i < 30_000; i++) {
                sum += inner(i);
            }
        }

        private long inner(int i) {
            return (i ^ sum) & 0xffff;
        }

        @Override
        public long getAsLong() {
            return sum;
        }
    }

    private interface Shape {
        long area(int i);
    }

    private long classes(int number) throws Exception {
        Runnable work = (Runnable) new Passing().again(code).getDeclaredConstructor().newInstance();
        for (int i = 0; i <= number; i++) {
            work.run();
        }
        return ((java.util.function.LongSupplier) work).getAsLong();
    }

    private static long collect(int number) {
        List<Object> garbage = new ArrayList<>();
        for (int i = 0; i < 3000 + number; i++) {
            garbage.add(i % 3 == 0 ? new byte[i] : new Object[] {i, "garbage " + i, garbage});
        }
        kept = garbage.subList(0, 50).toArray();
        if (ThreadLocalRandom.current().nextInt(200) == 0) {
            System.gc();
        }
        return garbage.stream().mapToLong(one -> java.lang.reflect.Array.getLength(one)).sum();
    }

    /** From 16 B to 4 MiB, of several types, with clones and copies, which the VM allocates in other places. */
    private static long allocate(int number) throws Exception {
        long sum = 0;
        for (int size : new int[] {0, 1, 100, 4096, 70_000, 600_000, 4 << 20}) {
            byte[] bytes = new byte[size + number];
            Arrays.fill(bytes, (byte) 1);
            sum += bytes.clone().length + Arrays.copyOf(bytes, size / 2).length + new long[size / 8][2].length;
        }
        ByteBuffer direct = ByteBuffer.allocateDirect(10_000 + number);
        sum += direct.capacity() + java.lang.reflect.Array.newInstance(String.class, 300).hashCode() * 0L;
        List<Long> boxed = new ArrayList<>();
        for (long i = 0; i < 5000; i++) {
            boxed.add(i * 1000);
        }
        StringBuilder text = new StringBuilder();
        boxed.forEach(text::append);
        return sum + text.length();
    }

    private static long references(int number) {
        List<WeakReference<byte[]>> weak = new ArrayList<>();
        List<SoftReference<byte[]>> soft = new ArrayList<>();
        byte[] strong = new byte[1000 + number];
        for (int i = 0; i < 500; i++) {
            weak.add(new WeakReference<>(i % 2 == 0 ? strong : new byte[500]));
            soft.add(new SoftReference<>(new byte[200]));
        }
        long alive = 0;
        for (int i = 0; i < 500; i += 2) {
            byte[] one = weak.get(i).get();
            alive += one == null ? 0 : one.length;
        }
        return alive + soft.size() + strong.length;
    }

    private static int deeper(int depth) {
        return depth == 0 ? 0 : 1 + deeper(depth - 1);
    }

    private static int forever(int depth) {
        return forever(depth + 1) + 1;
    }

    private static long recurse(int number) {
        long sum = deeper(10 + 900 * number);
        if (ThreadLocalRandom.current().nextInt(20) == 0) {
            try {
                sum += forever(0);
            } catch (StackOverflowError expected) {
                sum += 0;
            }
        }
        return sum;
    }

    private static long area(Shape shape, int i) {
        return shape.area(i);
    }

    private static long fails(int number) {
        int[] four = new int[4];
        long sum = number;
        for (int i = 0; i < 2000; i++) {
            try {
                sum += area(i % 5 == 0 ? null : value -> value, i);
            } catch (NullPointerException expected) {
                sum += 1;
            }
            try {
                sum += four[i % 8] + new int[i % 6 - 2].length;
            } catch (IndexOutOfBoundsException | NegativeArraySizeException expected) {
                sum += 1;
            }
        }
        try {
            sum += throwing(60);
        } catch (IllegalStateException expected) {
            sum += 60;
        }
        return sum;
    }

    private static long throwing(int depth) {
        if (depth == 0) {
            throw new IllegalStateException("deep");
        }
        long before = depth;
        try {
            return throwing(depth - 1) + before;
        } finally {
            before = 0;
        }
    }

    /** Code compiled for the receiver types seen so far: a new type deoptimizes it. */
    private long deoptimise(int number) throws Throwable {
        List<Shape> shapes = new ArrayList<>();
        long sum = 0;
        for (int kind = 0; kind < 4; kind++) {
            int factor = kind + number;
            shapes.add(kind % 2 == 0 ? i -> (long) i * factor : new Shape() {
                @Override
                public long area(int i) {
                    return (long) i ^ factor;
                }
            });
            for (int i = 0; i < 20_000; i++) {
                sum += area(shapes.get(i % shapes.size()), i);
            }
        }
        Object another = new Passing().again(code).getDeclaredConstructor().newInstance();
        MethodHandle run = MethodHandles.lookup().findVirtual(Runnable.class, "run", MethodType.methodType(void.class));
        run.invoke((Runnable) another);
        return sum + ((java.util.function.LongSupplier) another).getAsLong();
    }

    private static long text(int number) {
        String text = String.join("", Collections.nCopies(30 + number, "the quick brown fox jumps over the lazy dog "));
        long sum = Pattern.compile("(\\w+) (\\w+)").matcher(text).replaceAll("$2 $1").split("[aeiou]+").length;
        sum += String.format("%s %d", text, text.length()).hashCode();
        sum += LongStream.range(0, 3000).mapToObj(Long::toString).filter(one -> one.endsWith("7")).count();
        Deflater deflater = new Deflater();
        deflater.setInput(text.getBytes(java.nio.charset.StandardCharsets.US_ASCII));
        deflater.finish();
        byte[] deflated = new byte[2000];
        int length = deflater.deflate(deflated);
        deflater.end();
        CRC32 crc = new CRC32();
        crc.update(deflated, 0, length);
        return sum + crc.getValue();
    }

    private static long threads(int number) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        AtomicLong sum = new AtomicLong();
        for (int i = 0; i < 8; i++) {
            Thread thread = new Thread(
                    () -> Spanprof.tagWrapper(Collections.singletonMap("thread", "brief"), () -> { sum.addAndGet(collect(number)); }));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return sum.get();
    }

    /** State that only the lock in use protects: each count is wrong if the lock is. */
    private static final class Shared {
        private final Object monitor = new Object();
        private final ReentrantLock lock = new ReentrantLock();
        private final Condition turned = lock.newCondition();
        private final Semaphore few = new Semaphore(2);
        private final BlockingQueue<Integer> handed = new ArrayBlockingQueue<>(4);
        private long inMonitor;
        private long inLock;
        private long waited;

        long work(int turns) {
            try {
                for (int turn = 0; turn < turns; turn++) {
                    synchronized (monitor) {
                        long before = inMonitor;
                        Thread.yield();
                        inMonitor = before + 1;
                        monitor.notifyAll();
                        if (turn % 7 == 0) {
                            monitor.wait(1);
                        }
                    }
                    lock.lock();
                    try {
                        long before = inLock;
                        Thread.yield();
                        inLock = before + 1;
                        turned.signalAll();
                        if (turn % 5 == 0 && turned.awaitNanos(100_000) >= 0) {
                            waited++;
                        }
                    } finally {
                        lock.unlock();
                    }
                    few.acquire();
                    few.release();
                    handed.put(turn);
                    handed.take();
                }
            } catch (InterruptedException unexpected) {
                throw new IllegalStateException(unexpected);
            }
            return turns;
        }
    }

    private static long contend(int number, ExecutorService executor) throws Exception {
        Shared shared = new Shared();
        int turns = 20 + number;
        List<Future<Long>> all = new ArrayList<>();
        ExecutorService own = executor == null ? Executors.newFixedThreadPool(4) : executor;
        for (int i = 0; i < 4; i++) {
            int worker = i;
            all.add(own.submit(() -> Spanprof.tagWrapper(Collections.singletonMap("worker", "" + worker), () -> shared.work(turns))));
        }
        long sum = 0;
        for (Future<Long> one : all) {
            sum += one.get();
        }
        if (executor == null) {
            own.shutdown();
        }
        if (shared.inMonitor != sum || shared.inLock != sum) {
            throw new IllegalStateException("two threads held a lock: " + shared.inMonitor + " and " + shared.inLock);
        }
        return sum;
    }

    /** Tasks of many virtual threads that wait and resume on other carriers, half of them labeled. */
    private long virtualThreads(int count) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        Semaphore few = new Semaphore(20);
        AtomicLong sum = new AtomicLong();
        for (int i = 0; i < 200; i++) {
            int number = i + count;
            Runnable task = () -> {
                few.acquireUninterruptibly();
                try {
                    sum.addAndGet(deeper(number));
                    Thread.sleep(0, 200_000);
                    synchronized (few) {
                        sum.addAndGet(new byte[number].length);
                    }
                    Thread.yield();
                    sum.addAndGet(throwing(20));
                } catch (IllegalStateException | InterruptedException expected) {
                    sum.addAndGet(1);
                } finally {
                    few.release();
                }
            };
            Runnable labelled = () -> Spanprof.tagWrapper(Collections.singletonMap("task", "" + number % 10), task);
            all.add(virtual.submit(number % 2 == 0 ? labelled : task));
        }
        for (Future<?> one : all) {
            one.get();
        }
        return sum.get();
    }

    private long tasks(int number) throws Exception {
        List<Future<Integer>> all = new ArrayList<>();
        long sum;
        try (Scope scope = Spanprof.tag(Collections.singletonMap("work", "tasks"))) {
            ExecutorService carrying = Spanprof.wrap(pool);
            for (int i = 0; i < 50; i++) {
                all.add(carrying.submit(() -> deeper(50 + number)));
            }
            sum = LongStream.range(0, 20_000).parallel().map(one -> one * one % 97).sum();
        }
        for (Future<Integer> one : all) {
            sum += one.get();
        }
        return sum;
    }
}
