import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.List;
import java.util.Map;

/** Starts spanprof in a program of a cell when the cell requires it; otherwise the run is the reference. */
final class Profiled {
    private Profiled() {}

    /** True when the profiler runs; false in the reference run, and on a machine without a clock, which is logged. */
    static boolean start() {
        String directory = System.getenv("FIELD_PROFILES");
        if (directory == null || directory.isEmpty()) {
            return false;
        }
        return Spanprof.start(SpanprofConfig.builder().serviceName("field").set("uploadInterval", 1)
                .destinations(List.of(Map.of("type", "file", "directory", directory, "keep", 10_000))).build());
    }
}
