import java.nio.file.Path;

/** A profiler of {@link ServiceRun}, with windows of a few seconds. */
interface ServiceProfiler {
    /** Stops; returns the counters of samples and losses as JSON. */
    String stop() throws Exception;

    /** Starts one by the name of its row; each class is loaded only with the JAR it needs. */
    static ServiceProfiler started(String name, String address, String windowSeconds) throws Exception {
        if (name.startsWith("spanprof, ")) {
            return OwnServiceProfiler.started(name.substring("spanprof, ".length()), address, windowSeconds);
        }
        if (name.startsWith("async-profiler")) {
            String live = name.endsWith("live") ? ",live" : "";
            String files = Path.of(System.getProperty("java.io.tmpdir"), "service-" + ProcessHandle.current().pid() + "-%n{2}.jfr").toString();
            AsyncProfilerPeer peer = new AsyncProfilerPeer("cpu");
            peer.execute("start,jfr,event=cpu,interval=10ms,alloc=512k" + live + ",lock=10us,loop=" + (int) Math.ceil(Double.parseDouble(windowSeconds))
                    + "s,file=" + files);
            return () -> {
                peer.stop();
                return "{}";
            };
        }
        return () -> "{}";
    }
}
