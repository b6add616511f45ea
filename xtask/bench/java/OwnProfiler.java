import io.spanprof.Spanprof;

/** Calls of spanprof that must succeed. */
final class OwnProfiler {
    private OwnProfiler() {}

    static void started(boolean isRunning) {
        if (!isRunning) {
            throw new IllegalStateException("spanprof did not start");
        }
    }

    static void delivered(boolean isDelivered) {
        if (!isDelivered) {
            throw new IllegalStateException("spanprof did not deliver everything: " + Spanprof.stats());
        }
    }

    static long counter(String name) {
        return (Long) Spanprof.stats().get(name);
    }
}
