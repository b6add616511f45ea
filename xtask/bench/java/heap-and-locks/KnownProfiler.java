/** A profiler of the programs of known truth: {@link AllocationsRun} and {@link WaitsRun}. Writes its profiles into a folder. */
interface KnownProfiler {
    /** The interval of async-profiler's samples. */
    int INTERVAL = 512 << 10;

    /** Stops, and writes the profiles. */
    void stop() throws Exception;

    /** Mean bytes between two samples. */
    int interval();

    /** Type and file of the profile of allocations, as members of a JSON object; empty without one. */
    String allocated();

    /** The same for objects in use. */
    String inUse();

    /** The same for waits. */
    String waits();

    default boolean hasAllocated() {
        return !allocated().isEmpty();
    }

    default boolean hasInUse() {
        return !inUse().isEmpty();
    }

    /** Starts one by the name of its row; each class is loaded only with the JAR it needs. */
    static KnownProfiler started(String name, String folder) throws Exception {
        if (name.startsWith("spanprof, ")) {
            return OwnKnownProfiler.started(name.substring("spanprof, ".length()), folder);
        }
        if (name.startsWith("async-profiler, ")) {
            return AsyncProfilerKnown.started(name.substring("async-profiler, ".length()), folder);
        }
        return new Files("", "", "", 0, () -> { });
    }

    /** End of a profile. */
    interface End {
        void run() throws Exception;
    }

    /** A profiler by its files. */
    record Files(String allocated, String inUse, String waits, int interval, End end) implements KnownProfiler {
        @Override
        public void stop() throws Exception {
            end.run();
        }
    }
}
