import one.profiler.AsyncProfiler;

/** async-profiler. */
final class AsyncProfilerPeer {
    private final AsyncProfiler profiler = AsyncProfiler.getInstance();

    String execute(String command) throws Exception {
        return profiler.execute(command);
    }

    void stop() {
        profiler.stop();
    }

    double metric(String name) throws Exception {
        return execute("metrics").lines().filter(line -> line.startsWith(name + " "))
                .mapToDouble(line -> Double.parseDouble(line.substring(name.length() + 1))).findFirst().orElse(0);
    }
}
