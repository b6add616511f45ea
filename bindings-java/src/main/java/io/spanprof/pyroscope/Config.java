package io.spanprof.pyroscope;

import io.spanprof.SpanprofConfig;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Pyroscope's settings under its own names; null leaves a setting as it was. What has no meaning here is accepted, does
 * nothing, and is told in one warning by {@link PyroscopeAgent#start(Config)}.
 */
public final class Config {
    private final Builder made;

    private Config(Builder made) {
        this.made = made;
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
        Map<String, String> all = new LinkedHashMap<>(labels());
        all.putAll(labels);
        if (!all.isEmpty()) {
            keys.put("tags", all);
        }
        Map<String, String> headers = made.headersAndUser();
        if (!headers.isEmpty()) {
            keys.put("headers", headers);
        }
        return SpanprofConfig.of(keys);
    }

    Map<String, String> labels() {
        return made.labels;
    }

    Logger.Level logLevel() {
        return made.logLevel;
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
        private final Map<String, Object> keys = new LinkedHashMap<>();
        private final Map<String, String> headers = new LinkedHashMap<>();
        private final Ignored ignored;
        private Map<String, String> labels = Map.of();
        private Logger.Level logLevel;
        private String user = "";
        private String password = "";

        public Builder() {
            ignored = new Ignored();
        }

        /** Begins with the settings of another. */
        public Builder(Config config) {
            Builder other = config.made;
            keys.putAll(other.keys);
            headers.putAll(other.headers);
            ignored = new Ignored(other.ignored);
            labels = other.labels;
            logLevel = other.logLevel;
            user = other.user;
            password = other.password;
        }

        private Builder set(String key, Object value) {
            if (value != null) {
                keys.put(key, value);
            }
            return this;
        }

        private Builder ignore(String name, boolean isAsked, String reason) {
            if (isAsked) {
                ignored.add(name, reason);
            } else {
                ignored.remove(name);
            }
            return this;
        }

        private static boolean isGiven(String value) {
            return value != null && !value.isEmpty();
        }

        public Builder setAgentEnabled(boolean value) {
            return set("enabled", value);
        }

        public Builder setApplicationName(String value) {
            return set("serviceName", value);
        }

        public Builder setServerAddress(String value) {
            return set("endpoint", value);
        }

        public Builder setProfilingInterval(Duration value) {
            long hz = Math.round(1e9 / Math.max(1, value.toNanos()));
            return set("sampleRate", Math.min(10_000, Math.max(1, hz)));
        }

        public Builder setProfilingEvent(EventType value) {
            keys.remove("wall");
            keys.remove("cpu");
            boolean isNeither = value == EventType.ALLOC || value == EventType.LOCK;
            ignore("setProfilingEvent", isNeither, value + " is not profiled, CPU time is");
            return value == EventType.WALL ? set("wall", true).set("cpu", false) : this;
        }

        public Builder setUploadInterval(Duration value) {
            return set("uploadInterval", value);
        }

        public Builder setProfileExportTimeout(Duration value) {
            return set("timeout", value);
        }

        public Builder setJavaStackDepthMax(int value) {
            return set("maxStackDepth", Math.min(2048, Math.max(16, value)));
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
            return isGiven(value) ? addHTTPHeader("x-scope-orgid", value) : this;
        }

        public Builder setAuthToken(String value) {
            return isGiven(value) ? addHTTPHeader("authorization", "Bearer " + value) : this;
        }

        public Builder setBasicAuthUser(String value) {
            user = value == null ? "" : value;
            return this;
        }

        public Builder setBasicAuthPassword(String value) {
            password = value == null ? "" : value;
            return this;
        }

        /** Which lines are said: INFO and less for all of them, else warnings alone. */
        public Builder setLogLevel(Logger.Level value) {
            logLevel = value;
            return this;
        }

        /** Where the library may be written; in place of the VM's own temporary directory. */
        public Builder setTmpDir(String value) {
            if (isGiven(value)) {
                System.setProperty("spanprof.libraryDirectory", value);
            }
            return this;
        }

        public Builder setProfilingAlloc(String value) {
            return ignore("setProfilingAlloc", isGiven(value), "allocations are not profiled");
        }

        public Builder setProfilingLock(String value) {
            return ignore("setProfilingLock", isGiven(value), "locks are not profiled");
        }

        public Builder setAllocLive(boolean value) {
            return ignore("setAllocLive", value, "allocations are not profiled");
        }

        public Builder setGcBeforeDump(boolean value) {
            return ignore("setGcBeforeDump", value, "allocations are not profiled");
        }

        public Builder setFormat(Format value) {
            return ignore("setFormat", value == Format.JFR, "profiles travel as OTLP");
        }

        public Builder setSamplingEventOrder(List<EventType> value) {
            return ignore("setSamplingEventOrder", value != null, "all that is profiled is profiled all the time");
        }

        public Builder setSamplingDuration(Duration value) {
            return ignore("setSamplingDuration", value != null, "all that is profiled is profiled all the time");
        }

        public Builder setProfilerType(ProfilerType value) {
            return ignore("setProfilerType", value != null, "there is one engine");
        }

        public Builder setJFRProfilerSettings(String value) {
            return ignore("setJFRProfilerSettings", isGiven(value), "there is one engine");
        }

        public Builder setAPLogLevel(String value) {
            return ignore("setAPLogLevel", isGiven(value), "there is one engine");
        }

        public Builder setAPExtraArguments(String value) {
            return ignore("setAPExtraArguments", isGiven(value), "there is one engine");
        }

        public Builder setPushQueueCapacity(int value) {
            return ignore("setPushQueueCapacity", true, "the queue is bounded in bytes, by queueMaxBytes");
        }

        public Builder setIngestMaxRetries(int value) {
            return ignore("setIngestMaxRetries", true, "windows are sent again for 15 minutes");
        }

        public Builder setCompressionLevelJFR(int value) {
            return ignore("setCompressionLevelJFR", true, "requests are compressed with gzip");
        }

        public Builder setCompressionLevelLabels(int value) {
            return ignore("setCompressionLevelLabels", true, "requests are compressed with gzip");
        }

        public Config build() {
            return new Config(new Builder(new Config(this)));
        }

        private Map<String, String> headersAndUser() {
            Map<String, String> all = new LinkedHashMap<>(headers);
            if (!user.isEmpty() || !password.isEmpty()) {
                byte[] pair = (user + ":" + password).getBytes(StandardCharsets.UTF_8);
                all.put("authorization", "Basic " + Base64.getEncoder().encodeToString(pair));
            }
            return all;
        }
    }
}
