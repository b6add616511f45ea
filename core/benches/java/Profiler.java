import java.nio.file.Path;
import java.util.List;

/** A profiler as its own documentation starts and stops it; lives in the measured process. */
interface Profiler {
    /** Starts at a rate; what it sends goes to the address. */
    void start(int rateHz, String address) throws Exception;

    /** What happens at the end of a window, until all is encoded and delivered; true when the profiler has stopped by it. */
    boolean endWindow() throws Exception;

    void stop() throws Exception;

    /** Starts, and keeps what it samples for {@link #seen}, in this folder where it writes files. */
    default void startKeeping(int rateHz, Path folder) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** As {@link #startKeeping}, by the clock on the wall instead of CPU time. */
    default void startWall(int rateHz, Path folder) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** Stops; all that was sampled since it was started to keep it. */
    default List<Seen> seen() throws Exception {
        throw new UnsupportedOperationException();
    }

    /** Time so far, in nanoseconds, that it says it spent on samples while their threads stood still; not a number if it says none. */
    default double onSamplesNs() throws Exception {
        return Double.NaN;
    }

    /** The part of it in which stacks were walked; not a number if it does not say. */
    default double walksNs() throws Exception {
        return Double.NaN;
    }

    /** CPU time of its own threads so far, in nanoseconds; not a number if it says none. */
    default double threadsNs() throws Exception {
        return Double.NaN;
    }

    /** Samples so far, as it says. */
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

    /** Nobody. */
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
