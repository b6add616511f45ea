import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Scope;
import io.spanprof.Spanprof;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Six phases of {@code PHASE_MS} of CPU time, each under a label and in a span whose id is the number of the phase. Prints
 * {@code phase NUMBER LEAST MOST}, the kernel's CPU time of the thread (schedstat, ns) within the label and around the span, then
 * {@code stats JSON}. With {@code SECTIONS}, three threads work in short phases instead. The settings are environment variables.
 */
public final class Phases {
    private static final long PHASE_NS = Long.parseLong(System.getenv("PHASE_MS")) * 1_000_000;

    /** What {@link #burn} computes, which nobody needs. */
    private static final AtomicLong BLACK_HOLE = new AtomicLong();

    private Phases() {}

    private static long ran() throws Exception {
        // The kernel's figure is of the last tick, or of the last wait.
        Thread.sleep(1);
        return Long.parseLong(Files.readString(Path.of("/proc/thread-self/schedstat")).split(" ")[0]);
    }

    private static long clock() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static long burn(long ns) throws Exception {
        long end = clock() + ns;
        long total = 0;
        while (clock() < end) {
            for (long number = 0; number < 1_000; number++) {
                total = total * 31 + (number ^ (total >>> 7));
            }
        }
        return total;
    }

    /** Burns CPU time; returns the kernel's figure of it. */
    private static long ranIn(long ns) throws Exception {
        long before = ran();
        BLACK_HOLE.set(burn(ns));
        return ran() - before;
    }

    /** Works under the label and in the span of a phase. */
    private static long phase(int number, Spanprof.Work<Long, Exception> work) throws Exception {
        String text = "%016x".formatted(number);
        SpanContext ids = SpanContext.create("0".repeat(16) + text, text, TraceFlags.getSampled(), TraceState.getDefault());
        try (Scope span = Span.wrap(ids).makeCurrent()) {
            return Spanprof.tagWrapper(Map.of("phase", Integer.toString(number)), work);
        }
    }

    /** What a thread does between its turns. */
    private interface Wait {
        void run() throws Exception;
    }

    /** A thread that works in two phases of the given µs in turn and waits after each turn, until it has used a time. */
    private static Thread turns(int number, long us, long otherUs, Wait wait) {
        Thread thread = new Thread(() -> {
            try {
                long[] least = new long[2];
                long[] most = new long[2];
                for (long end = clock() + 20 * PHASE_NS; clock() < end; wait.run()) {
                    for (int index = 0; index < 2; index++) {
                        long before = clock();
                        long ns = 1_000 * (index == 0 ? us : otherUs);
                        least[index] += phase(number + index, () -> {
                            long begun = clock();
                            BLACK_HOLE.set(burn(ns));
                            return clock() - begun;
                        });
                        most[index] += clock() - before;
                    }
                }
                System.out.printf("phase %d %d %d%n", number, least[0], most[0]);
                System.out.printf("phase %d %d %d%n", number + 1, least[1], most[1]);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        thread.start();
        return thread;
    }

    /** Threads that wake up by a timer, in step with the kernel's tick; by another thread; and never. */
    private static void sections() throws Exception {
        SynchronousQueue<Long> there = new SynchronousQueue<>();
        SynchronousQueue<Long> back = new SynchronousQueue<>();
        Thread echo = new Thread(() -> {
            try {
                while (true) {
                    back.put(there.take());
                }
            } catch (InterruptedException end) {
                return;
            }
        });
        echo.start();
        Thread[] threads = {
            turns(1, 100, 100, () -> LockSupport.parkNanos(200_000)),
            turns(3, 100, 50, () -> {
                there.put(1L);
                back.take();
            }),
            turns(5, 3_000, 1_000, () -> { }),
        };
        for (Thread thread : threads) {
            thread.join();
        }
        echo.interrupt();
    }

    public static void main(String[] args) throws Exception {
        // Compiled before the phases begin.
        long total = burn(500_000_000L);
        Spanprof.start();
        // Loads the classes of scopes and spans, outside of the phases.
        total += phase(99, () -> ranIn(1_000_000L));
        boolean inSections = System.getenv("SECTIONS") != null;
        if (inSections) {
            sections();
        }
        for (int number = 1; number <= 6 && !inSections; number++) {
            long before = ran();
            long least = phase(number, () -> ranIn(PHASE_NS));
            System.out.println("phase " + number + " " + least + " " + (ran() - before));
            Thread.sleep(20);
        }
        StringJoiner json = new StringJoiner(",", "stats {", "}");
        Spanprof.stats().forEach((name, value) -> {
            if (value instanceof Number) {
                json.add("\"" + name + "\":" + value);
            }
        });
        System.out.println(json);
        Spanprof.stop();
        System.err.println(total + BLACK_HOLE.get());
    }
}
