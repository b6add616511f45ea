import java.nio.file.Path;

/** A profiler of {@link ServiceRun}, with its default settings. */
interface ServiceProfiler {
    /** Stops; returns the counters of samples and losses as JSON. */
    String stop() throws Exception;

    /** Starts one by the name of its row; each class is loaded only with the JAR it needs. */
    static ServiceProfiler started(String name, String address) throws Exception {
        if (name.startsWith("spanprof, ")) {
            return OwnServiceProfiler.started(name.substring("spanprof, ".length()), address);
        }
        if (name.startsWith("async-profiler")) {
            String files = Path.of(System.getProperty("java.io.tmpdir"), "service-" + ProcessHandle.current().pid() + ".jfr").toString();
            AsyncProfilerPeer peer = new AsyncProfilerPeer();
            String lock = name.endsWith("lock") ? ",lock" : "";
            // Its default interval of samples is 10 ms, that of allocations 512 KiB.
            peer.execute("start,jfr,event=cpu,alloc=512k" + lock + ",file=" + files);
            return () -> {
                peer.stop();
                return "{}";
            };
        }
        return () -> "{}";
    }
}
