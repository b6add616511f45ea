package io.spanprof.pyroscope;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;

/** Pyroscope's names of the label API. */
public final class Pyroscope {
    private static Map<String, String> configLabels = Collections.emptyMap();
    private static Map<String, String> programLabels = Collections.emptyMap();

    private Pyroscope() {}

    /**
     * Sets labels of every sample, in addition to those of the configuration: of the running profiler, else of the one that
     * {@link PyroscopeAgent} starts.
     */
    public static void setStaticLabels(Map<String, String> labels) {
        SpanprofConfig changes;
        synchronized (Pyroscope.class) {
            programLabels = labels == null ? Collections.emptyMap() : new LinkedHashMap<>(labels);
            Map<String, String> all = new LinkedHashMap<>(configLabels);
            all.putAll(programLabels);
            changes = SpanprofConfig.builder().tags(all).build();
        }
        Spanprof.update(changes);
    }

    /** Stores the labels of the configuration at a start; returns the labels set before, to be added. */
    static synchronized Map<String, String> startingWith(Map<String, String> labels) {
        configLabels = labels;
        return programLabels;
    }

    /** Runs work with labels. */
    public static final class LabelsWrapper {
        private LabelsWrapper() {}

        /** Runs work; returns its value and throws its exceptions. */
        public static <T> T run(LabelsSet labels, Callable<T> work) throws Exception {
            return Spanprof.<T, Exception>tagWrapper(LabelsSet.labelsOf(labels), work::call);
        }

        /** Runs work without a value. */
        public static void run(LabelsSet labels, Runnable work) {
            Spanprof.tagWrapper(LabelsSet.labelsOf(labels), work);
        }
    }
}
