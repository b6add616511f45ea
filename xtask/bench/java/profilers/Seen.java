import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordingFile;

/**
 * A profiler's report of one stack: its methods, leaf first, number of samples, duration, and labels.
 * {@code framesWithoutLine}: frames of Java code without a line.
 */
record Seen(List<String> methods, long count, double ns, long framesWithoutLine, Map<String, String> labels) {
    /** Frames in place of unreadable ones, by the names of each profiler. */
    private static final List<String> BROKEN = List.of(
            "[invalid_frame]", "[code_ended]", "[unknown", "[not_walkable", "[break_", "[no_Java_frame", "unknown_", "not_walkable");

    /** Frames of methods with lines, by the names of the flight recorder. */
    private static final List<String> JAVA = List.of("Interpreted", "JIT compiled", "Inlined", "C1 compiled");

    boolean has(String method) {
        return methods.contains(method);
    }

    boolean isBroken() {
        return methods.stream().anyMatch(method -> BROKEN.stream().anyMatch(method::contains));
    }

    static double ns(List<Seen> all, String method) {
        return all.stream().filter(seen -> seen.has(method)).mapToDouble(Seen::ns).sum();
    }

    /** The samples of a recording: each weighs a period, or its own weight. */
    static List<Seen> of(Path recording, double periodNs, LongFunction<Map<String, String>> labels) throws IOException {
        List<Seen> all = new ArrayList<>();
        try (RecordingFile file = new RecordingFile(recording)) {
            while (file.hasMoreEvents()) {
                RecordedEvent event = file.readEvent();
                if (event.getStackTrace() != null && event.getEventType().getName().endsWith("Sample")) {
                    all.add(of(event, periodNs, labels));
                }
            }
        }
        return all;
    }

    private static Seen of(RecordedEvent event, double periodNs, LongFunction<Map<String, String>> labels) {
        List<String> methods = new ArrayList<>();
        long withoutLine = 0;
        for (RecordedFrame frame : event.getStackTrace().getFrames()) {
            methods.add(frame.getMethod().getType().getName() + "." + frame.getMethod().getName());
            boolean isJava = JAVA.contains(frame.getType()) && !frame.getMethod().getType().getName().contains("$$Lambda");
            withoutLine += isJava && frame.getLineNumber() <= 0 ? 1 : 0;
        }
        long count = event.hasField("samples") ? event.getInt("samples") : 1;
        double each = event.hasField("samplingPeriod") ? event.getDuration("samplingPeriod").toNanos() : periodNs;
        long context = event.hasField("contextId") ? event.getLong("contextId") : 0;
        return new Seen(methods, count, count * each, withoutLine, context == 0 ? Map.of() : labels.apply(context));
    }
}
