import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** spanprof, with its heap profile of an interval or with its lock profile. */
final class OwnKnownProfiler {
    private OwnKnownProfiler() {}

    static KnownProfiler started(String option, String folder) {
        boolean isLock = option.equals("lock");
        int interval = isLock ? 0 : Integer.parseInt(option);
        SpanprofConfig.Builder settings = SpanprofConfig.builder().cpu(false).gc(false).heap(!isLock).lock(isLock)
                .uploadInterval(Duration.ofHours(1)).destinations(List.of(Map.of("type", "file", "directory", folder)));
        if (!isLock) {
            settings.set("heapInterval", interval);
        }
        OwnProfiler.started(Spanprof.start(settings.build()));
        return new KnownProfiler.Files("\"type\": \"alloc_space\"", "\"type\": \"inuse_space\"", "\"type\": \"delay\"", interval,
                () -> OwnProfiler.delivered(Spanprof.stop()));
    }
}
