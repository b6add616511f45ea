import io.pyroscope.http.Format;
import io.pyroscope.javaagent.EventType;
import io.pyroscope.javaagent.ProfilerDelegate;
import io.pyroscope.javaagent.Snapshot;
import io.pyroscope.javaagent.api.Logger;
import io.pyroscope.javaagent.config.Config;
import io.pyroscope.javaagent.impl.DefaultLogger;
import io.pyroscope.javaagent.impl.PyroscopeExporter;
import io.pyroscope.labels.pb.JfrLabels;
import io.pyroscope.labels.v2.ScopedContext;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Pyroscope's agent, in its parts: its own schedule begins with a window of at least two seconds, and drops the last one. Here
 * the work of the end of a window runs when a window ends.
 */
final class PyroscopePeer implements Profiler {
    private ProfilerDelegate profiler;
    private PyroscopeExporter exporter;
    private Instant begun;
    private double periodNs;

    @Override
    public void start(int rateHz, String address) {
        if (profiler == null) {
            Config config = config(rateHz, address);
            profiler = ProfilerDelegate.create(config);
            exporter = new PyroscopeExporter(config, new DefaultLogger(Logger.Level.ERROR, System.err));
        }
        begin();
    }

    private void begin() {
        begun = Instant.now();
        profiler.start();
        // As the agent does; otherwise labels are lost.
        ScopedContext.ENABLED.set(true);
    }

    static Config config(int rateHz, String address) {
        Config.Builder settings = new Config.Builder().setApplicationName("bench").setFormat(Format.JFR)
                .setProfilingInterval(Duration.ofNanos(1_000_000_000L / rateHz)).setLogLevel(Logger.Level.ERROR);
        return (address == null ? settings : settings.setServerAddress(address)).build();
    }

    /** The ending window. */
    Snapshot window() {
        profiler.stop();
        return profiler.dumpProfile(begun, Instant.now());
    }

    @Override
    public void startKeeping(int rateHz, Path folder) {
        begin(config(rateHz, null), rateHz);
    }

    @Override
    public void startWall(int rateHz, Path folder) {
        begin(new Config.Builder(config(rateHz, null)).setProfilingEvent(EventType.WALL).build(), rateHz);
    }

    private void begin(Config config, int rateHz) {
        periodNs = 1e9 / rateHz;
        profiler = ProfilerDelegate.create(config);
        begin();
    }

    @Override
    public List<Seen> seen() throws Exception {
        return seen(window(), periodNs);
    }

    static List<Seen> seen(Snapshot window, double periodNs) throws IOException {
        Path file = Files.createTempFile("pyroscope-", ".jfr");
        try {
            Files.write(file, window.data);
            return Seen.of(file, periodNs, context -> labels(window.labels, context));
        } finally {
            Files.delete(file);
        }
    }

    private static Map<String, String> labels(JfrLabels.LabelsSnapshot snapshot, long context) {
        Map<String, String> labels = new HashMap<>();
        JfrLabels.Context found = snapshot.getContextsMap().get(context);
        if (found != null) {
            Map<Long, String> texts = snapshot.getStringsMap();
            found.getLabelsMap().forEach((key, value) -> labels.put(texts.get(key), texts.get(value)));
        }
        return labels;
    }

    @Override
    public boolean endWindow() {
        exporter.export(window());
        return true;
    }

    @Override
    public void stop() {
        profiler.stop();
    }
}
