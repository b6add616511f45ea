import io.pyroscope.javaagent.PyroscopeAgent;
import io.pyroscope.javaagent.Snapshot;
import io.pyroscope.javaagent.api.Exporter;
import io.pyroscope.javaagent.config.Config;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Pyroscope's agent as a program uses it, with its own schedule of windows. */
final class PyroscopeAgentPeer implements Profiler {
    private final List<Snapshot> windows = new ArrayList<>();
    private int rateHz;

    @Override
    public void start(int rateHz, String address) {
        PyroscopeAgent.start(PyroscopePeer.config(rateHz, address));
        started();
    }

    private static void started() {
        if (!PyroscopeAgent.isStarted()) {
            throw new IllegalStateException("Pyroscope's agent did not start");
        }
    }

    @Override
    public void startKeeping(int rateHz, Path folder) {
        this.rateHz = rateHz;
        Config config = PyroscopePeer.config(rateHz, null);
        PyroscopeAgent.start(new PyroscopeAgent.Options.Builder(config).setExporter(new Exporter() {
            @Override
            public void export(Snapshot snapshot) {
                windows.add(snapshot);
            }

            @Override
            public void stop() {}
        }).build());
        started();
    }

    @Override
    public List<Seen> seen() throws Exception {
        stop();
        List<Seen> seen = new ArrayList<>();
        for (Snapshot window : windows) {
            seen.addAll(PyroscopePeer.seen(window, 1e9 / rateHz));
        }
        return seen;
    }

    @Override
    public boolean endWindow() {
        return false;
    }

    @Override
    public void stop() {
        PyroscopeAgent.stop();
    }
}
