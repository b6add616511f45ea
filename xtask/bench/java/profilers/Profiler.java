import java.nio.file.Path;
import java.util.List;

/** A profiler, started and stopped as its documentation describes; runs in the measured process. */
interface Profiler {
    /** Starts at a rate, with delivery to the address. */
    void start(int rateHz, String address) throws Exception;

    /** The work at the end of a window, encoding and delivery included; true if it stopped the profiler. */
    boolean endWindow() throws Exception;

    void stop() throws Exception;

    /** Starts, and keeps its samples for {@link #seen}, in this directory if it writes files. */
    default void startKeeping(int rateHz, Path folder) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** As {@link #startKeeping}, by wall clock instead of CPU time. */
    default void startWall(int rateHz, Path folder) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** Stops; returns all samples since {@link #startKeeping}. */
    default List<Seen> seen() throws Exception {
        throw new UnsupportedOperationException();
    }

    /** Reported time so far, in nanoseconds, of samples on their stopped threads; NaN if it reports none. */
    default double onSamplesNs() throws Exception {
        return Double.NaN;
    }

    /** The part of it in which stacks were walked; NaN if it reports none. */
    default double walksNs() throws Exception {
        return Double.NaN;
    }

    /** CPU time of its own threads so far, in nanoseconds; NaN if it reports none. */
    default double threadsNs() throws Exception {
        return Double.NaN;
    }

    /** Reported number of samples so far. */
    default double samples() throws Exception {
        return Double.NaN;
    }

    /** By a name; each class is loaded only with the JAR it needs. */
    static Profiler named(String name) throws Exception {
        return switch (name) {
            case "none" -> new None();
            case "spanprof" -> new OwnProfiler("auto");
            case "spanprof-with-timers" -> new OwnProfiler("thread_timer");
            case "async-profiler" -> new AsyncProfilerPeer("cpu");
            case "async-profiler-with-stats" -> new AsyncProfilerPeer("cpu,features=stats");
            case "async-profiler-with-ctimer" -> new AsyncProfilerPeer("ctimer");
            case "pyroscope" -> new PyroscopePeer();
            case "pyroscope-with-schedule" -> new PyroscopeAgentPeer();
            case "jfr" -> new FlightRecorderPeer(false);
            case "jfr-with-cpu-time" -> new FlightRecorderPeer(true);
            default -> throw new IllegalArgumentException("no profiler `" + name + "`");
        };
    }

    /** No profiler. */
    final class None implements Profiler {
        @Override
        public void start(int rateHz, String address) {}

        @Override
        public boolean endWindow() {
            return false;
        }

        @Override
        public void stop() {}
    }
}
