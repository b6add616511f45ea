package io.spanprof.pyroscope;

import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Map;
import java.util.concurrent.Callable;

/** Pyroscope's names around labels. */
public final class Pyroscope {
    private Pyroscope() {}

    /** Labels on every sample from here on. */
    public static void setStaticLabels(Map<String, String> labels) {
        Spanprof.update(SpanprofConfig.builder().tags(labels).build());
    }

    /** Work under labels. */
    public static final class LabelsWrapper {
        private LabelsWrapper() {}

        /** Gives the work's value, throws what it throws. */
        public static <T> T run(LabelsSet labels, Callable<T> work) throws Exception {
            try (Scope scope = Spanprof.tag(labels.labels)) {
                return work.call();
            }
        }

        /** As the other, without a value. */
        public static void run(LabelsSet labels, Runnable work) {
            try (Scope scope = Spanprof.tag(labels.labels)) {
                work.run();
            }
        }
    }
}
