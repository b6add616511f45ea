import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import java.util.zip.Deflater;

/**
 * Programs with stacks of one shape each, for a library that records them. Each shape has a method of its name, called by a
 * method with the suffix {@code Caller}. Ends with the first recording.
 *
 * <pre>RecordedShapes SHAPE DIRECTORY</pre>
 */
public final class RecordedShapes {
    private static final long TIME_LIMIT_NS = 60_000_000_000L;
    private static final int[] FROM = new int[1 << 20];
    private static final int[] TO = new int[1 << 20];
    public static volatile long sink;
    private static volatile boolean isOver;
    private static final Cell CELL = new Cell();

    private RecordedShapes() {}

    static long compiled(int n) {
        long sum = n;
        for (int i = 0; i < 2000; i++) {
            sum = sum * 31 + (sum >>> 7);
        }
        return sum;
    }

    public static long compiledCaller(int n) {
        return compiled(n) + 1;
    }

    static long inlinedCallee(long sum) {
        return sum * 31 + (sum >>> 7);
    }

    static long inlined(int n) {
        long sum = n;
        for (int i = 0; i < 2000; i++) {
            sum = inlinedCallee(sum);
        }
        return sum;
    }

    static long inlinedCaller(int n) {
        return inlined(n) + 1;
    }

    static long partialFrame(int n) {
        return sink + n;
    }

    static long partialFrameCaller(int n) {
        long sum = 0;
        for (int i = 0; i < 1000; i++) {
            sum += partialFrame(i);
        }
        return sum + n;
    }

    /** Excluded from compilation. */
    static long interpreted(int n) {
        long sum = n;
        for (int i = 0; i < 200; i++) {
            sum = sum * 31 + (sum >>> 7);
        }
        return sum;
    }

    static long interpretedCaller(int n) {
        return interpreted(n) + 1;
    }

    /** Excluded from compilation: most of its time is its entry and its return. */
    static long interpreterEntry(int n) {
        return n;
    }

    static long interpreterEntryCaller(int n) {
        long sum = 0;
        for (int i = 0; i < 1000; i++) {
            sum += interpreterEntry(i);
        }
        return sum + n;
    }

    static long stub(int n) {
        System.arraycopy(FROM, n & 1023, TO, n >> 1 & 1023, FROM.length - 1024);
        return TO[n & 1023];
    }

    static long stubCaller(int n) {
        return stub(n) + 1;
    }

    /** Excluded from compilation: compiled callers use an adapter, which moves the arguments to the stack. */
    static long adapter(long a, long b, long c, long d, long e, long f, long g, long h, long i, double j, double k) {
        return a;
    }

    static long adapterCaller(int n) {
        return adapter(n, n, n, n, n, n, n, n, n, n, n) + 1;
    }

    static long nativeLeaf(int n) {
        Deflater deflater = new Deflater(9);
        byte[] bytes = new byte[1 << 16];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (i * n >> 5);
        }
        deflater.setInput(bytes);
        deflater.finish();
        long length = deflater.deflate(new byte[1 << 16]);
        deflater.end();
        return length;
    }

    static long nativeLeafCaller(int n) {
        return nativeLeaf(n) + 1;
    }

    static long exception(int n) {
        if (n >= 0) {
            throw new IllegalStateException();
        }
        return n;
    }

    static long exceptionCaller(int n) {
        try {
            return exception(n) + 1;
        } catch (IllegalStateException expected) {
            return 1;
        }
    }

    private static final class Cell {
        private long value = 1;
    }

    /** The VM checks for null by the fault of the load. */
    static long fault(Cell cell) {
        return cell.value;
    }

    static long faultCaller(int n) {
        try {
            return fault(n % 8 == 0 ? null : CELL) + 1;
        } catch (NullPointerException expected) {
            return 1;
        }
    }

    /** Loaded once per round; the VM calls the initializer. */
    public static final class UpcallRound {
        static {
            long sum = 0;
            for (int i = 0; i < 3000; i++) {
                sum += compiledCaller(i);
            }
            sink += sum;
        }

        private UpcallRound() {}
    }

    /** A virtual thread that waits above deep frames, which remain in the heap when it continues. */
    private static void framesInHeapRound() throws ReflectiveOperationException, InterruptedException {
        Runnable round = () -> sink += framesInHeap(20);
        // Not in the oldest supported Java.
        Thread thread = (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, round);
        thread.join();
    }

    private static long framesInHeap(int depth) {
        if (depth > 0) {
            return framesInHeap(depth - 1) + 1;
        }
        long sum = 0;
        for (int round = 0; round < 20; round++) {
            LockSupport.parkNanos(1);
            for (int i = 0; i < 200; i++) {
                sum += compiledCaller(i);
            }
        }
        return sum;
    }

    /** One call that never returns: the loop is entered by on-stack replacement. */
    static long osr(int n) {
        long sum = n;
        while (!isOver) {
            sum = sum * 31 + (sum >>> 7);
        }
        return sum;
    }

    static long osrCaller(int n) {
        return osr(n) + 1;
    }

    /** The class whose method a compiled caller inlines, as long as it has no subclass. */
    public static class DeoptBase {
        public long value(long n) {
            return n * 31;
        }
    }

    /** Loading this class invalidates the caller. */
    public static final class DeoptDerived extends DeoptBase {
        @Override
        public long value(long n) {
            return n * 37;
        }
    }

    /** Loads the derived class when it is used itself: the verifier would load it with the class of the round. */
    public static final class DeoptFactory {
        private DeoptFactory() {}

        static DeoptBase derived() {
            return new DeoptDerived();
        }
    }

    /** Loaded once per round. */
    public static final class DeoptRound implements Runnable {
        private static final int WARM_UP = 20_000;

        private DeoptBase base = new DeoptBase();
        private boolean isLast;

        /** Inlines {@code value}; its frame is deoptimized while {@code deoptimization} runs. */
        long deoptimizationCaller(int n) {
            deoptimization(n);
            return base.value(n);
        }

        void deoptimization(int n) {
            if (isLast) {
                base = DeoptFactory.derived();
                long sum = n;
                for (int i = 0; i < 300; i++) {
                    sum += compiledCaller(i);
                }
                sink += sum;
            }
        }

        @Override
        public void run() {
            for (int i = 0; i < WARM_UP; i++) {
                sink += deoptimizationCaller(i);
            }
            isLast = true;
            sink += deoptimizationCaller(0);
        }
    }

    /** Defines the classes of a round again. */
    private static final class RoundLoader extends ClassLoader {
        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("RecordedShapes$Deopt") && !name.startsWith("RecordedShapes$Upcall")) {
                return super.loadClass(name, resolve);
            }
            Class<?> loaded = findLoadedClass(name);
            return loaded != null ? loaded : findClass(name);
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            try (InputStream in = RecordedShapes.class.getResourceAsStream(name + ".class")) {
                byte[] code = new byte[1 << 16];
                int length = 0;
                for (int count = 0; count >= 0; count = in.read(code, length, code.length - length)) {
                    length += count;
                }
                return defineClass(name, code, 0, length);
            } catch (IOException failure) {
                throw new ClassNotFoundException(name, failure);
            }
        }
    }

    private static void deoptimizationRound() throws ReflectiveOperationException {
        Class<?> round = new RoundLoader().loadClass("RecordedShapes$DeoptRound");
        ((Runnable) round.getDeclaredConstructor().newInstance()).run();
    }

    private static long call(String shape, int n) throws ReflectiveOperationException, InterruptedException {
        switch (shape) {
            case "compiled":
                return compiledCaller(n);
            case "inlined":
                return inlinedCaller(n);
            case "interpreted":
                return interpretedCaller(n);
            case "stub":
                return stubCaller(n);
            case "adapter":
                return adapterCaller(n);
            case "native_leaf":
                return nativeLeafCaller(n);
            case "exception":
                return exceptionCaller(n);
            case "deoptimization":
                deoptimizationRound();
                return 0;
            case "partial_frame":
                return partialFrameCaller(n);
            case "interpreter_entry":
                return interpreterEntryCaller(n);
            case "fault":
                return faultCaller(n);
            case "upcall":
                Class.forName("RecordedShapes$UpcallRound", true, new RoundLoader());
                return 0;
            case "frames_in_heap":
                framesInHeapRound();
                return 0;
            case "osr":
                return osrCaller(n);
            default:
                throw new IllegalArgumentException(shape);
        }
    }

    /** Ends the process when a recording exists, or the time is up. */
    private static void watch(Path directory) throws IOException, InterruptedException {
        long begun = System.nanoTime();
        while (System.nanoTime() - begun < TIME_LIMIT_NS) {
            Thread.sleep(20);
            try (Stream<Path> files = Files.walk(directory)) {
                if (files.anyMatch(file -> file.toString().endsWith(".json"))) {
                    // The file is written at once, but in more than one call.
                    Thread.sleep(100);
                    Runtime.getRuntime().halt(0);
                }
            }
        }
        System.out.println("no stack of this shape within 60 s");
        Runtime.getRuntime().halt(1);
    }

    public static void main(String[] args) throws Exception {
        Path directory = Paths.get(args[1]);
        Path profiles = Files.createTempDirectory("recorded-shapes");
        Spanprof.start(SpanprofConfig.builder().serviceName("shapes").sampleRate(1000).fileDirectory(profiles.toString()).build());
        Thread watcher = new Thread(() -> {
            try {
                watch(directory);
            } catch (IOException | InterruptedException failure) {
                failure.printStackTrace();
                Runtime.getRuntime().halt(2);
            }
        });
        watcher.setDaemon(true);
        watcher.start();
        for (int i = 0; !isOver; i++) {
            sink += call(args[0], i);
        }
    }
}
