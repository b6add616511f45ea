package io.spanprof.pyroscope;

import io.spanprof.SpanprofConfig;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Pyroscope's settings under its own names; null leaves a setting as it was. What has no meaning here is accepted, does
 * nothing, and is told in one warning by {@link PyroscopeAgent#start(Config)}.
 *
 * <p>The fields are what the builder was told, and else the agent's own defaults: what the environment, the properties and
 * the files say is read at the start, and is not in them.
 */
public final class Config {
    public final boolean agentEnabled;
    public final String applicationName;
    public final ProfilerType profilerType;
    public final Duration profilingInterval;
    public final EventType profilingEvent;
    public final String profilingAlloc;
    public final String profilingLock;
    public final List<EventType> samplingEventOrder;
    public final Duration uploadInterval;
    public final int javaStackDepthMax;
    public final Logger.Level logLevel;
    public final String serverAddress;
    public final String authToken;
    public final String jfrProfilerSettings;
    public final Format format;
    public final int pushQueueCapacity;
    public final Map<String, String> labels;
    public final int ingestMaxTries;
    public final int compressionLevelJFR;
    public final int compressionLevelLabels;
    public final boolean allocLive;
    public final boolean gcBeforeDump;
    public final Map<String, String> httpHeaders;
    public final Duration samplingDuration;
    public final Duration profileExportTimeout;
    public final String tenantID;
    public final String APLogLevel;
    public final String APExtraArguments;
    public final String basicAuthUser;
    public final String basicAuthPassword;
    public final Path tmpDir;

    private final Builder made;

    private Config(Builder made) {
        this.made = made;
        agentEnabled = made.toldOr("setAgentEnabled", true);
        applicationName = made.told("setApplicationName", String.class);
        profilerType = made.toldOr("setProfilerType", ProfilerType.ASYNC);
        profilingInterval = made.toldOr("setProfilingInterval", Duration.ofMillis(10));
        profilingEvent = made.toldOr("setProfilingEvent", EventType.ITIMER);
        profilingAlloc = made.toldOr("setProfilingAlloc", "");
        profilingLock = made.toldOr("setProfilingLock", "");
        samplingEventOrder = made.toldOr("setSamplingEventOrder", (List<EventType>) null);
        uploadInterval = made.toldOr("setUploadInterval", Duration.ofSeconds(10));
        javaStackDepthMax = made.toldOr("setJavaStackDepthMax", 2048);
        logLevel = made.toldOr("setLogLevel", Logger.Level.INFO);
        serverAddress = made.toldOr("setServerAddress", "http://localhost:4040");
        authToken = made.told("setAuthToken", String.class);
        jfrProfilerSettings = made.told("setJFRProfilerSettings", String.class);
        format = made.toldOr("setFormat", Format.JFR);
        pushQueueCapacity = made.toldOr("setPushQueueCapacity", 8);
        labels = made.labels;
        ingestMaxTries = made.toldOr("setIngestMaxRetries", 8);
        compressionLevelJFR = made.toldOr("setCompressionLevelJFR", 1);
        compressionLevelLabels = made.toldOr("setCompressionLevelLabels", 1);
        allocLive = made.toldOr("setAllocLive", false);
        gcBeforeDump = made.toldOr("setGcBeforeDump", false);
        httpHeaders = Collections.unmodifiableMap(made.headers);
        samplingDuration = made.told("setSamplingDuration", Duration.class);
        profileExportTimeout = made.toldOr("setProfileExportTimeout", Duration.ofSeconds(10));
        tenantID = made.told("setTenantID", String.class);
        APLogLevel = made.told("setAPLogLevel", String.class);
        APExtraArguments = made.told("setAPExtraArguments", String.class);
        basicAuthUser = made.told("setBasicAuthUser", String.class);
        basicAuthPassword = made.told("setBasicAuthPassword", String.class);
        tmpDir = made.told("setTmpDir", Path.class);
    }

    /** How often a second there is a sample. */
    public long profilingIntervalInHertz() {
        return hertz(profilingInterval);
    }

    private static long hertz(Duration period) {
        return Math.round(1 / Math.max(1e-9, period.getSeconds() + period.getNano() / 1e9));
    }

    /** Nothing is set: what the environment, the properties and the files say. */
    public static Config build() {
        return new Builder().build();
    }

    /** These settings, to be changed. */
    public Builder newBuilder() {
        return new Builder(this);
    }

    /** The settings under our names. */
    public SpanprofConfig translated() {
        return translated(Map.of());
    }

    /** The settings under our names, with more labels on every sample. */
    SpanprofConfig translated(Map<String, String> labels) {
        Map<String, Object> keys = new LinkedHashMap<>(made.keys);
        Map<String, String> all = new LinkedHashMap<>(made.labels);
        all.putAll(labels);
        if (!all.isEmpty()) {
            keys.put("tags", all);
        }
        Map<String, String> headers = made.allHeaders();
        if (!headers.isEmpty()) {
            keys.put("headers", headers);
        }
        return SpanprofConfig.of(keys);
    }

    /** Null where none was asked for. */
    Logger.Level levelAskedFor() {
        return made.told("setLogLevel", Logger.Level.class);
    }

    Ignored ignored() {
        return made.ignored;
    }

    /** Keys only: values may be secret. */
    @Override
    public String toString() {
        return translated().toString();
    }

    /** Collects settings. */
    public static final class Builder {
        /** What was told, by the names of the setters. */
        private final Map<String, Object> told = new HashMap<>();
        /** What it comes to, by our keys. */
        private final Map<String, Object> keys = new LinkedHashMap<>();
        private final Map<String, String> headers = new LinkedHashMap<>();
        private final Ignored ignored;
        private Map<String, String> labels = Map.of();

        public Builder() {
            ignored = new Ignored();
        }

        /** Begins with the settings of another. */
        public Builder(Config config) {
            Builder other = config.made;
            told.putAll(other.told);
            keys.putAll(other.keys);
            headers.putAll(other.headers);
            ignored = new Ignored(other.ignored);
            labels = other.labels;
        }

        private <T> T told(String setter, Class<T> type) {
            return type.cast(told.get(setter));
        }

        private <T> T toldOr(String setter, T otherwise) {
            @SuppressWarnings("unchecked") // What a setter was told is of the type that it takes.
            T value = (T) told.get(setter);
            return value == null ? otherwise : value;
        }

        private Builder tell(String setter, Object value) {
            if (value != null) {
                told.put(setter, value);
            }
            return this;
        }

        /** A setting that has a key of ours. */
        private Builder set(String setter, Object value, String key) {
            return set(setter, value, key, value);
        }

        private Builder set(String setter, Object value, String key, Object translated) {
            if (value != null) {
                keys.put(key, translated);
            }
            return tell(setter, value);
        }

        /** A setting that does nothing here. */
        private Builder ignore(String setter, Object value, boolean isAsked, String reason) {
            ignored.note(setter, isAsked, reason);
            return tell(setter, value);
        }

        private static boolean isGiven(String value) {
            return value != null && !value.isEmpty();
        }

        public Builder setAgentEnabled(boolean value) {
            return set("setAgentEnabled", value, "enabled");
        }

        public Builder setApplicationName(String value) {
            return set("setApplicationName", value, "serviceName");
        }

        public Builder setServerAddress(String value) {
            return set("setServerAddress", value, "endpoint");
        }

        public Builder setProfilingInterval(Duration value) {
            long hz = value == null ? 0 : hertz(value);
            return set("setProfilingInterval", value, "sampleRate", Math.min(10_000, Math.max(1, hz)));
        }

        public Builder setProfilingEvent(EventType value) {
            if (value == null) {
                return this;
            }
            keys.remove("wall");
            keys.remove("cpu");
            if (value == EventType.WALL) {
                keys.put("wall", true);
                keys.put("cpu", false);
            }
            boolean isNeither = value == EventType.ALLOC || value == EventType.LOCK;
            return ignore("setProfilingEvent", value, isNeither, value + " is not profiled, CPU time is");
        }

        public Builder setUploadInterval(Duration value) {
            return set("setUploadInterval", value, "uploadInterval");
        }

        public Builder setProfileExportTimeout(Duration value) {
            return set("setProfileExportTimeout", value, "timeout");
        }

        public Builder setJavaStackDepthMax(int value) {
            return set("setJavaStackDepthMax", value, "maxStackDepth", Math.min(2048, Math.max(16, value)));
        }

        public Builder setLabels(Map<String, String> value) {
            labels = value == null ? Map.of() : Map.copyOf(value);
            return this;
        }

        public Builder setHTTPHeaders(Map<String, String> value) {
            if (value != null) {
                headers.putAll(value);
            }
            return this;
        }

        public Builder addHTTPHeader(String name, String value) {
            headers.put(name, value);
            return this;
        }

        public Builder setTenantID(String value) {
            return tell("setTenantID", value);
        }

        public Builder setAuthToken(String value) {
            return tell("setAuthToken", value);
        }

        public Builder setBasicAuthUser(String value) {
            return tell("setBasicAuthUser", value);
        }

        public Builder setBasicAuthPassword(String value) {
            return tell("setBasicAuthPassword", value);
        }

        /** Which lines are said: INFO and less for all of them, else warnings alone. */
        public Builder setLogLevel(Logger.Level value) {
            return tell("setLogLevel", value);
        }

        /** Where the library may be written; in place of the VM's own temporary directory. */
        public Builder setTmpDir(String value) {
            if (isGiven(value)) {
                System.setProperty("spanprof.libraryDirectory", value);
                tell("setTmpDir", Path.of(value));
            }
            return this;
        }

        public Builder setProfilingAlloc(String value) {
            return ignore("setProfilingAlloc", value, isGiven(value), "allocations are not profiled");
        }

        public Builder setProfilingLock(String value) {
            return ignore("setProfilingLock", value, isGiven(value), "locks are not profiled");
        }

        public Builder setAllocLive(boolean value) {
            return ignore("setAllocLive", value, value, "allocations are not profiled");
        }

        public Builder setGcBeforeDump(boolean value) {
            return ignore("setGcBeforeDump", value, value, "allocations are not profiled");
        }

        public Builder setFormat(Format value) {
            return ignore("setFormat", value, value == Format.JFR, "profiles travel as OTLP");
        }

        public Builder setSamplingEventOrder(List<EventType> value) {
            List<EventType> order = value == null ? null : List.copyOf(value);
            return ignore("setSamplingEventOrder", order, order != null, "all that is profiled is profiled all the time");
        }

        public Builder setSamplingDuration(Duration value) {
            return ignore("setSamplingDuration", value, value != null, "all that is profiled is profiled all the time");
        }

        public Builder setProfilerType(ProfilerType value) {
            return ignore("setProfilerType", value, value != null, "there is one engine");
        }

        public Builder setJFRProfilerSettings(String value) {
            return ignore("setJFRProfilerSettings", value, isGiven(value), "there is one engine");
        }

        public Builder setAPLogLevel(String value) {
            return ignore("setAPLogLevel", value, isGiven(value), "there is one engine");
        }

        public Builder setAPExtraArguments(String value) {
            return ignore("setAPExtraArguments", value, isGiven(value), "there is one engine");
        }

        public Builder setPushQueueCapacity(int value) {
            return ignore("setPushQueueCapacity", value, true, "the queue is bounded in bytes, by queueMaxBytes");
        }

        public Builder setIngestMaxRetries(int value) {
            return ignore("setIngestMaxRetries", value, true, "windows are sent again for 15 minutes");
        }

        public Builder setCompressionLevelJFR(int value) {
            return ignore("setCompressionLevelJFR", value, true, "requests are compressed with gzip");
        }

        public Builder setCompressionLevelLabels(int value) {
            return ignore("setCompressionLevelLabels", value, true, "requests are compressed with gzip");
        }

        public Config build() {
            return new Config(new Builder(new Config(this)));
        }

        private Map<String, String> allHeaders() {
            Map<String, String> all = new LinkedHashMap<>(headers);
            if (!toldOr("setTenantID", "").isEmpty()) {
                all.put("x-scope-orgid", toldOr("setTenantID", ""));
            }
            if (!toldOr("setAuthToken", "").isEmpty()) {
                all.put("authorization", "Bearer " + toldOr("setAuthToken", ""));
            }
            String pair = toldOr("setBasicAuthUser", "") + ":" + toldOr("setBasicAuthPassword", "");
            if (pair.length() > 1) {
                byte[] bytes = pair.getBytes(StandardCharsets.UTF_8);
                all.put("authorization", "Basic " + Base64.getEncoder().encodeToString(bytes));
            }
            return all;
        }
    }
}
