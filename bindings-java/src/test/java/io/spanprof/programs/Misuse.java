package io.spanprof.programs;

import io.spanprof.Labels;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.time.Duration;

/** A program that passes null to the profiler. Prints the number of counted invalid arguments. */
public final class Misuse {
    private Misuse() {}

    public static void main(String[] args) {
        Spanprof.start(SpanprofConfig.builder().serviceName("misuse").endpoint("http://127.0.0.1:9").build());
        Labels none = null;
        Duration never = null;
        Spanprof.tagWrapper(none, () -> { });
        Spanprof.tagWrapper(none, () -> { });
        Spanprof.flush(never);
        System.out.println("counted " + Spanprof.stats().get("java.invalid_arguments"));
    }
}
