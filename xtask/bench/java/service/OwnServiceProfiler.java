import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Map;
import java.util.stream.Collectors;

/** spanprof in a web service. */
final class OwnServiceProfiler {
    private static final String SAMPLES_AND_LOSSES =
            "(samples\\.(cpu|wall|off_cpu|submitted)|heap\\.samples|dropped\\.[a-z_]+|windows\\.closed|runtime\\.java\\.lock_waits)";

    private OwnServiceProfiler() {}

    static ServiceProfiler started(String types, String address) throws Exception {
        SpanprofConfig.Builder settings = SpanprofConfig.builder().serviceName("bench").endpoint(address);
        switch (types) {
            case "cpu" -> settings.heap(false).gc(false);
            case "heap" -> settings.cpu(false).gc(false);
            case "all" -> settings.profiles("all");
            default -> { }
        }
        Spanprof.start(settings.build());
        return () -> {
            Map<String, Object> stats = Spanprof.stats();
            Spanprof.stop();
            return stats.entrySet().stream().filter(stat -> stat.getKey().matches(SAMPLES_AND_LOSSES))
                    .map(stat -> "\"" + stat.getKey() + "\": " + stat.getValue()).collect(Collectors.joining(", ", "{", "}"));
        };
    }
}
