package io.spanprof.pyroscope;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;

/** Pyroscope's names around labels. */
public final class Pyroscope {
    private static Map<String, String> ofConfig = Map.of();
    private static Map<String, String> ofProgram = Map.of();

    private Pyroscope() {}

    /**
     * Labels on every sample from here on, beside those of the configuration: of the running profiler, else of the one that
     * {@link PyroscopeAgent} starts.
     */
    public static void setStaticLabels(Map<String, String> labels) {
        SpanprofConfig changes;
        synchronized (Pyroscope.class) {
            ofProgram = labels == null ? Map.of() : new LinkedHashMap<>(labels);
            Map<String, String> all = new LinkedHashMap<>(ofConfig);
            all.putAll(ofProgram);
            changes = SpanprofConfig.builder().tags(all).build();
        }
        Spanprof.update(changes);
    }

    /** What was set last. */
    public static synchronized Map<String, String> getStaticLabels() {
        return ofProgram;
    }

    /** The profiler starts with these labels of its configuration: those that were set before are to be added. */
    static synchronized Map<String, String> startingWith(Map<String, String> labels) {
        ofConfig = labels;
        return ofProgram;
    }

    /** Work under labels. */
    public static final class LabelsWrapper {
        private LabelsWrapper() {}

        /** Gives the work's value, throws what it throws. */
        public static <T> T run(LabelsSet labels, Callable<T> work) throws Exception {
            try (Scope scope = Spanprof.tag(LabelsSet.labelsOf(labels))) {
                return work.call();
            }
        }

        /** As the other, without a value. */
        public static void run(LabelsSet labels, Runnable work) {
            try (Scope scope = Spanprof.tag(LabelsSet.labelsOf(labels))) {
                work.run();
            }
        }

        /** There is nothing to clear: no scope is kept anywhere but on its own thread. */
        public static void clear() {}
    }
}
