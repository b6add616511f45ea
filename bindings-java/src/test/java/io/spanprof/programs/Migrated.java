package io.spanprof.programs;

import io.spanprof.pyroscope.Config;
import io.spanprof.pyroscope.ConstantContext;
import io.spanprof.pyroscope.EventType;
import io.spanprof.pyroscope.Format;
import io.spanprof.pyroscope.LabelsSet;
import io.spanprof.pyroscope.Logger;
import io.spanprof.pyroscope.Pyroscope;
import io.spanprof.pyroscope.PyroscopeAgent;
import io.spanprof.pyroscope.ScopedContext;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

/** What the documentation of Pyroscope's agent shows, with the imports renamed, without its own exporter and scheduler. */
public final class Migrated {
    private static final ConstantContext CONTEXT = ConstantContext.of(new LabelsSet("path", "/foo/bar", "method", "GET"));
    private static double sum;

    private Migrated() {}

    private static void burn() {
        for (int i = 0; i < 30_000_000; i++) {
            sum += Math.sqrt(i + sum);
        }
    }

    static void wrapped() {
        burn();
    }

    static void scoped() {
        burn();
    }

    static void constant() {
        burn();
    }

    static void plain() {
        burn();
    }

    public static void main(String[] arguments) throws Exception {
        List<String> lines = new CopyOnWriteArrayList<>();
        Pyroscope.setStaticLabels(Map.of("region", "eu"));
        Config config = new Config.Builder()
                .setApplicationName("ride-sharing-app-java")
                .setProfilingEvent(EventType.ITIMER)
                .setFormat(Format.JFR)
                .setLogLevel(Logger.Level.DEBUG)
                .setServerAddress(System.getenv("NOBODY_SETS_THIS"))
                .setLabels(Map.of("team", "rides"))
                .setUploadInterval(Duration.ofMillis(500))
                .build();
        PyroscopeAgent.start(new PyroscopeAgent.Options.Builder(config)
                .setLogger((l, msg, args) -> lines.add(l + " " + String.format(msg, args)))
                .build());
        PyroscopeAgent.start(config);
        Pyroscope.LabelsWrapper.run(new LabelsSet("controller", "slow_controller"), () -> {
            wrapped();
        });
        try (ScopedContext context = new ScopedContext(new LabelsSet("request_id", "7"))) {
            scoped();
        }
        try {
            CONTEXT.activate();
            constant();
        } finally {
            CONTEXT.deactivate();
        }
        plain();
        System.out.println("started " + (PyroscopeAgent.isStarted() ? 1 : 0));
        long end = System.nanoTime() + 30_000_000_000L;
        while (lines.stream().noneMatch(line -> line.contains("first window")) && System.nanoTime() < end) {
            Thread.sleep(10);
        }
        PyroscopeAgent.stop();
        lines.forEach(line -> System.out.println("line " + line));
    }
}
