import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Scope;
import io.spanprof.Spanprof;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.StringJoiner;

/**
 * Six phases of {@code PHASE_MS} of CPU time, each under a label and in a span whose id is the number of the phase. Prints
 * {@code phase NUMBER NS} with the kernel's CPU time of the thread in each (schedstat), then {@code stats JSON}. The settings are
 * environment variables.
 */
public final class Phases {
    private static final long PHASE_NS = Long.parseLong(System.getenv("PHASE_MS")) * 1_000_000;

    private Phases() {}

    private static long ran() throws Exception {
        return Long.parseLong(Files.readString(Path.of("/proc/thread-self/schedstat")).split(" ")[0]);
    }

    private static long burn(long ns) throws Exception {
        long end = ran() + ns;
        long total = 0;
        while (ran() < end) {
            for (long number = 0; number < 1_000_000; number++) {
                total = total * 31 + (number ^ (total >>> 7));
            }
        }
        return total;
    }

    /** Burns CPU time under the label and in the span of a phase. */
    private static long phase(int number, long ns) throws Exception {
        String text = "%016x".formatted(number);
        SpanContext ids = SpanContext.create("0".repeat(16) + text, text, TraceFlags.getSampled(), TraceState.getDefault());
        try (Scope span = Span.wrap(ids).makeCurrent()) {
            return Spanprof.tagWrapper(Map.of("phase", Integer.toString(number)), () -> burn(ns));
        }
    }

    public static void main(String[] args) throws Exception {
        // Compiled before the phases begin.
        long total = burn(500_000_000L);
        Spanprof.start();
        // Loads the classes of scopes and spans, outside of the phases.
        total += phase(99, 1_000_000L);
        for (int number = 1; number <= 6; number++) {
            long before = ran();
            total += phase(number, PHASE_NS);
            long used = ran() - before;
            System.out.println("phase " + number + " " + used);
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
        System.err.println(total);
    }
}
