import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * A profiler of the programs of known truth: {@link AllocationsRun} and {@link AccuracyRun}. Writes its profiles into a folder. Type
 * and file of a profile are members of a JSON object, empty without one; {@code interval} is the mean bytes between two samples.
 */
record KnownProfiler(String allocated, String inUse, String cpu, int interval, End end) {
    /** The interval of async-profiler's samples of allocations. */
    private static final int INTERVAL = 512 << 10;

    /** Stops, and writes the profiles. */
    interface End {
        void run() throws Exception;
    }

    /** By the name of its row: {@code spanprof} or {@code async-profiler}, and the settings. */
    static KnownProfiler started(String name, String folder) throws Exception {
        String option = name.substring(name.indexOf(", ") + 2);
        return name.startsWith("spanprof") ? Own.started(option, folder) : asyncProfiler(option, folder);
    }

    private static KnownProfiler asyncProfiler(String option, String folder) throws Exception {
        AsyncProfilerPeer peer = new AsyncProfilerPeer();
        String event = switch (option) {
            case "alloc" -> "event=alloc,alloc=" + INTERVAL;
            case "live" -> "event=alloc,live,alloc=" + INTERVAL;
            default -> "event=cpu,interval=" + 1_000_000_000L / Integer.parseInt(option);
        };
        peer.execute("start," + event);
        String file = "\"file\": \"profile.folded\"";
        boolean isAlloc = option.equals("alloc");
        boolean isLive = option.equals("live");
        return new KnownProfiler(isAlloc ? file : "", isLive ? file : "", isAlloc || isLive ? "" : file, INTERVAL, () -> {
            peer.stop();
            peer.execute("collapsed,total,file=" + Path.of(folder, "profile.folded"));
        });
    }

    /** Loaded with the JAR of spanprof only. */
    private static final class Own {
        static KnownProfiler started(String option, String folder) {
            int number = Integer.parseInt(option);
            SpanprofConfig.Builder settings = SpanprofConfig.builder().gc(false).uploadInterval(Duration.ofHours(1)).maxStackDepth(256)
                    .destinations(List.of(Map.of("type", "file", "directory", folder)));
            boolean isHeap = number > 10_000;
            OwnProfiler.started(Spanprof.start(isHeap ? settings.cpu(false).set("heapInterval", number).build()
                    : settings.heap(false).sampleRate(number).build()));
            return new KnownProfiler("\"type\": \"alloc_space\"", "\"type\": \"inuse_space\"", "\"type\": \"cpu\"", number,
                    () -> OwnProfiler.delivered(Spanprof.stop()));
        }
    }
}
