package io.spanprof.pyroscope;

import io.spanprof.Spanprof;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
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
        LoggerAdapter lines = new LoggerAdapter(logger, Objects.requireNonNullElse(config.logLevel, Logger.Level.INFO));
        if (options.logger != null || config.logLevel != null) {
            Spanprof.setLogger(lines);
        }
        String unreported = config.ignored.entrySet().stream().filter(entry -> REPORTED.add(entry.getKey()))
                .map(entry -> entry.getKey() + " (" + entry.getValue() + ")").collect(Collectors.joining(", "));
        if (!unreported.isEmpty()) {
            lines.log(System.Logger.Level.WARNING, "spanprof: settings of Pyroscope's agent that do nothing here: " + unreported);
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
