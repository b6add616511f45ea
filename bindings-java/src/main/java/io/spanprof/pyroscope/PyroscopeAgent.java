package io.spanprof.pyroscope;

import io.spanprof.Spanprof;

/** Pyroscope's names of start and stop. */
public final class PyroscopeAgent {
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
        LoggerAdapter lines = new LoggerAdapter(logger, config.logLevel);
        if (options.logger != null || config.configuredLogLevel() != null) {
            Spanprof.setLogger(lines);
        }
        String unreported = options.ignored.takeUnreported();
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

    /** Settings and replaceable parts of the agent; here only the logger can be replaced. */
    public static final class Options {
        private final Config config;
        private final Logger logger;
        private final Ignored ignored;

        private Options(Config config, Logger logger, Ignored ignored) {
            this.config = config;
            this.logger = logger;
            this.ignored = ignored;
        }

        /** A builder of options. */
        public static final class Builder {
            private final Config config;
            private final Ignored ignored;
            private Logger logger;

            public Builder(Config config) {
                this.config = config;
                this.ignored = new Ignored(config.ignored());
            }

            /** Sets the logger of the profiler's lines. */
            public Builder setLogger(Logger value) {
                logger = value;
                return this;
            }

            /** Never called: profiles are sent to the configured destinations. */
            public Builder setExporter(Exporter value) {
                return ignore("setExporter", value, "profiles go to the destinations of the configuration");
            }

            /** Never called. */
            public Builder setScheduler(ProfilingScheduler value) {
                return ignore("setScheduler", value, "uploadInterval sets the length of a window");
            }

            /** Never called. */
            public Builder setProfiler(ProfilerDelegate value) {
                return ignore("setProfiler", value, "there is one engine");
            }

            private Builder ignore(String name, Object value, String reason) {
                ignored.record(name, value != null, reason);
                return this;
            }

            public Options build() {
                return new Options(config, logger, new Ignored(ignored));
            }
        }
    }
}
