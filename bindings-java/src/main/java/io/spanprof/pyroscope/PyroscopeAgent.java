package io.spanprof.pyroscope;

import io.spanprof.Spanprof;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** Pyroscope's names of start and stop. */
public final class PyroscopeAgent {
    /** Settings without effect that a warning has named. */
    private static final Set<String> REPORTED = ConcurrentHashMap.newKeySet();
    /** The logger of the last options that set one. */
    private static volatile Logger logger;

    private PyroscopeAgent() {}

    /** Starts with the settings of the environment, the properties and the files. */
    public static void start() {
        start(Config.build());
    }

    public static void start(Config config) {
        start(new Options.Builder(config).build());
    }

    public static void start(Options options) {
        Config config = options.config;
        if (options.logger != null) {
            logger = options.logger;
        }
        Logger chosen = logger;
        boolean logsInformation = config.logLevel == null || config.logLevel.compareTo(Logger.Level.INFO) <= 0;
        // Warnings, which mean missing or incomplete profiles, are always logged. A line may contain `%`.
        Consumer<String> warn = chosen == null ? null : line -> chosen.log(Logger.Level.WARN, "%s", line);
        Consumer<String> info = chosen == null ? null : line -> chosen.log(Logger.Level.INFO, "%s", line);
        if (options.logger != null || config.logLevel != null) {
            Spanprof.setLogger(logsInformation ? info : line -> { }, warn);
        }
        String unreported = config.ignored.entrySet().stream().filter(entry -> REPORTED.add(entry.getKey()))
                .map(entry -> entry.getKey() + " (" + entry.getValue() + ")").collect(Collectors.joining(", "));
        if (!unreported.isEmpty()) {
            String line = "spanprof: settings of Pyroscope's agent that do nothing here: " + unreported;
            (warn == null ? (Consumer<String>) System.err::println : warn).accept(line);
        }
        Spanprof.start(config.translated(Pyroscope.startingWith(config.labels)));
    }

    public static void stop() {
        Spanprof.stop();
    }

    public static boolean isStarted() {
        return Spanprof.isRunning();
    }

    /** Settings, and the receiver of the profiler's log lines. */
    public static final class Options {
        private final Config config;
        private final Logger logger;

        private Options(Config config, Logger logger) {
            this.config = config;
            this.logger = logger;
        }

        /** A builder of options. */
        public static final class Builder {
            private final Config config;
            private Logger logger;

            public Builder(Config config) {
                this.config = config;
            }

            /** Sets the logger of the profiler's lines. */
            public Builder setLogger(Logger value) {
                logger = value;
                return this;
            }

            public Options build() {
                return new Options(config, logger);
            }
        }
    }
}
