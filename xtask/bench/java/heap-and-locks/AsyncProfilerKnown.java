import java.nio.file.Path;

/** async-profiler, with one event and bytes or nanoseconds by stack in a file. */
final class AsyncProfilerKnown {
    private AsyncProfilerKnown() {}

    static KnownProfiler started(String option, String folder) throws Exception {
        AsyncProfilerPeer peer = new AsyncProfilerPeer("cpu");
        String event = switch (option) {
            case "alloc" -> "event=alloc,alloc=" + KnownProfiler.INTERVAL;
            case "live" -> "event=alloc,live,alloc=" + KnownProfiler.INTERVAL;
            // As long as our threshold.
            default -> "event=lock,lock=10us";
        };
        peer.execute("start," + event);
        String file = "\"file\": \"" + option + ".folded\"";
        boolean isAlloc = option.equals("alloc");
        boolean isLive = option.equals("live");
        return new KnownProfiler.Files(isAlloc ? file : "", isLive ? file : "", isAlloc || isLive ? "" : file, KnownProfiler.INTERVAL, () -> {
            peer.stop();
            peer.execute("collapsed,total,file=" + Path.of(folder, option + ".folded"));
        });
    }
}
