import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import one.profiler.AsyncProfiler;

/** async-profiler, recording to a file in JFR's format. */
final class AsyncProfilerPeer implements Profiler {
    private final AsyncProfiler profiler = AsyncProfiler.getInstance();
    private final String event;
    private final Path file;
    private double periodNs;

    AsyncProfilerPeer(String event) throws Exception {
        this.event = event;
        // Not `createTempFile`: the JDK's random numbers would count as part of the profiler's first start.
        file = Path.of(System.getProperty("java.io.tmpdir"), "async-profiler-" + System.nanoTime() + ".jfr");
        file.toFile().deleteOnExit();
    }

    @Override
    public void start(int rateHz, String address) throws Exception {
        execute("start,jfr,event=" + event + ",interval=" + 1_000_000_000L / rateHz + ",file=" + file);
    }

    @Override
    public void startKeeping(int rateHz, Path folder) throws Exception {
        start(rateHz, null);
        periodNs = 1e9 / rateHz;
    }

    @Override
    public void startWall(int rateHz, Path folder) throws Exception {
        periodNs = 1e9 / rateHz;
        execute("start,jfr,event=wall,interval=" + 1_000_000_000L / rateHz + ",file=" + file);
    }

    @Override
    public List<Seen> seen() throws Exception {
        stop();
        return Seen.of(file, periodNs, context -> Map.of());
    }

    /** As {@link #start}, with measurement of its walk. */
    void startMeasuringWalks(int rateHz) throws Exception {
        execute("start,event=" + event + ",interval=" + 1_000_000_000L / rateHz + ",features=stats");
    }

    String execute(String command) throws Exception {
        return profiler.execute(command);
    }

    @Override
    public boolean endWindow() throws Exception {
        stop();
        return true;
    }

    @Override
    public void stop() throws Exception {
        profiler.stop();
    }

    /** Time of the walk alone. */
    @Override
    public double onSamplesNs() throws Exception {
        return metric("stackwalk_ns_total");
    }

    @Override
    public double samples() throws Exception {
        return metric("samples_total") - metric("samples_skipped_total");
    }

    private double metric(String name) throws Exception {
        return execute("metrics").lines().filter(line -> line.startsWith(name + " "))
                .mapToDouble(line -> Double.parseDouble(line.substring(name.length() + 1))).findFirst().orElse(0);
    }
}
