import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import jdk.jfr.Recording;

/** The VM's flight recorder with samples only: of running threads, or by CPU time (Java 25). */
final class FlightRecorderPeer implements Profiler {
    private final boolean byCpuTime;
    private Recording recording;
    private double periodNs;

    FlightRecorderPeer(boolean byCpuTime) {
        this.byCpuTime = byCpuTime;
    }

    @Override
    public void start(int rateHz, String address) {
        recording = new Recording();
        Duration period = Duration.ofNanos(1_000_000_000L / rateHz);
        if (byCpuTime) {
            recording.enable("jdk.CPUTimeSample").with("throttle", period.toMillis() + "ms");
        } else {
            recording.enable("jdk.ExecutionSample").withPeriod(period);
            recording.enable("jdk.NativeMethodSample").withPeriod(period);
        }
        recording.start();
    }

    @Override
    public void startKeeping(int rateHz, Path folder) {
        start(rateHz, null);
        periodNs = 1e9 / rateHz;
    }

    @Override
    public List<Seen> seen() throws Exception {
        recording.stop();
        Path file = window();
        try {
            return Seen.of(file, periodNs, context -> Map.of());
        } finally {
            Files.delete(file);
            stop();
        }
    }

    /** The file of the window. */
    Path window() throws Exception {
        Path file = Files.createTempFile("flight-recorder-", ".jfr");
        recording.dump(file);
        return file;
    }

    @Override
    public boolean endWindow() throws Exception {
        Files.delete(window());
        return false;
    }

    @Override
    public void stop() {
        recording.close();
    }
}
