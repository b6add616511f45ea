package io.spanprof.pyroscope;

import io.spanprof.Spanprof;

/** Pyroscope's names of the verbs. */
public final class PyroscopeAgent {
    /** Named by the last options that named one. */
    private static volatile Logger logger;

    private PyroscopeAgent() {}

    /** Starts with what the environment, the properties and the files say. */
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
        LinesTo lines = new LinesTo(logger, config.logLevel);
        if (options.logger != null || config.levelAskedFor() != null) {
            Spanprof.setLogger(lines);
        }
        String untold = options.ignored.untold();
        if (!untold.isEmpty()) {
            lines.log(System.Logger.Level.WARNING, "spanprof: settings of Pyroscope's agent that do nothing here: " + untold);
        }
        Spanprof.start(config.translated(Pyroscope.startingWith(config.labels)));
    }

    public static void stop() {
        Spanprof.stop();
    }

    public static boolean isStarted() {
        return Spanprof.isRunning();
    }

    /** Settings, and parts of the agent to be replaced: of those only the logger is one that can be replaced here. */
    public static final class Options {
        private final Config config;
        private final Logger logger;
        private final Ignored ignored;

        private Options(Config config, Logger logger, Ignored ignored) {
            this.config = config;
            this.logger = logger;
            this.ignored = ignored;
        }

        /** Collects them. */
        public static final class Builder {
            private final Config config;
            private final Ignored ignored;
            private Logger logger;

            public Builder(Config config) {
                this.config = config;
                this.ignored = new Ignored(config.ignored());
            }

            /** Takes the profiler's lines from here on. */
            public Builder setLogger(Logger value) {
                logger = value;
                return this;
            }

            /** Never called: what it did a destination of the configuration does. */
            public Builder setExporter(Exporter value) {
                return ignore("setExporter", value, "profiles go to the destinations of the configuration");
            }

            /** Never called. */
            public Builder setScheduler(ProfilingScheduler value) {
                return ignore("setScheduler", value, "uploadInterval says when a window ends");
            }

            /** Never called. */
            public Builder setProfiler(ProfilerDelegate value) {
                return ignore("setProfiler", value, "there is one engine");
            }

            private Builder ignore(String name, Object value, String reason) {
                ignored.note(name, value != null, reason);
                return this;
            }

            public Options build() {
                return new Options(config, logger, new Ignored(ignored));
            }
        }
    }
}
