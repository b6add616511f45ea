import io.spanprof.ProfileFile;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** spanprof, sending over HTTP as it does by default. */
final class OwnProfiler implements Profiler {
    private final String clock;
    private Path folder;
    private String type;
    /** Period of a profile without counted samples; 0 while there is none. */
    private long wallPeriodNs;

    OwnProfiler(String clock) {
        this.clock = clock;
    }

    @Override
    public void start(int rateHz, String address) {
        started(Spanprof.start(settings(rateHz).endpoint(address).build()));
    }

    SpanprofConfig.Builder settings(int rateHz) {
        return SpanprofConfig.builder().serviceName("bench").sampleRate(rateHz).clock(clock).maxStackDepth(256);
    }

    @Override
    public void startKeeping(int rateHz, Path folder) {
        keep(settings(rateHz), folder, "cpu");
    }

    @Override
    public void startWall(int rateHz, Path folder) {
        keep(settings(rateHz).cpu(false).wall(true).wallRate(rateHz), folder, "wall");
        wallPeriodNs = 1_000_000_000L / rateHz;
    }

    private void keep(SpanprofConfig.Builder settings, Path folder, String type) {
        this.folder = folder;
        this.type = type;
        Map<String, ?> file = Map.of("type", "file", "directory", folder.toString(), "keep", 10_000);
        started(Spanprof.start(settings.destinations(List.of(file)).build()));
    }

    @Override
    public List<Seen> seen() throws IOException {
        stop();
        List<Seen> seen = new ArrayList<>();
        for (ProfileFile.Sample sample : ProfileFile.readAll(folder, type)) {
            List<String> methods = sample.frames().stream().map(ProfileFile.Frame::function).toList();
            // A name in brackets or of native code has no line.
            long withoutLine = sample.frames().stream()
                    .filter(frame -> frame.line() == 0 && frame.file().endsWith(".java")).count();
            long count = wallPeriodNs == 0 ? sample.count() : sample.nanoseconds() / wallPeriodNs;
            seen.add(new Seen(methods, count, sample.nanoseconds(), withoutLine, sample.labels()));
        }
        return seen;
    }

    static void started(boolean isRunning) {
        if (!isRunning) {
            throw new IllegalStateException("spanprof did not start");
        }
    }

    @Override
    public boolean endWindow() {
        delivered(Spanprof.flush(Duration.ofSeconds(10)));
        return false;
    }

    static void delivered(boolean isDelivered) {
        if (!isDelivered) {
            throw new IllegalStateException("spanprof did not deliver everything: " + Spanprof.stats());
        }
    }

    @Override
    public void stop() {
        delivered(Spanprof.stop());
    }

    /** The whole handler: the walk, and the commit of the sample to the ring. */
    @Override
    public double onSamplesNs() {
        return counter("clock.handler_ns");
    }

    @Override
    public double walksNs() {
        return counter("clock.walk_ns");
    }

    @Override
    public double threadsNs() {
        return counter("cost.own_cpu_ns");
    }

    /** Samples that the drain thread has already taken. */
    @Override
    public double samples() {
        return counter("samples.cpu");
    }

    static long counter(String name) {
        return (Long) Spanprof.stats().get(name);
    }
}
