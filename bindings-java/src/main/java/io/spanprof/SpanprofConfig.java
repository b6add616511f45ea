package io.spanprof;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Settings in code. Other settings come from {@code SPANPROF_*} and {@code OTEL_*} variables, the configuration file and
 * the defaults. docs/reference/configuration.md describes the keys.
 */
public final class SpanprofConfig {
    private final Map<String, Object> values;

    private SpanprofConfig(Map<String, Object> values) {
        this.values = values;
    }

    /** A builder without settings. */
    public static Builder builder() {
        return new Builder();
    }

    /** Settings from a map with keys in camelCase, as for {@link Builder#set}. */
    public static SpanprofConfig of(Map<String, ?> values) {
        Builder builder = builder();
        if (!InvalidArgument.isNull(values, "SpanprofConfig.of()", "nothing is set")) {
            values.forEach(builder::set);
        }
        return builder.build();
    }

    String toJson() {
        return Json.write(values);
    }

    /** Keys only: values may be secret. */
    @Override
    public String toString() {
        return "SpanprofConfig" + values.keySet();
    }

    /** Collects settings. */
    public static final class Builder {
        private final Map<String, Object> values = new LinkedHashMap<>();

        private Builder() {}

        /** Copies a map without pairs that contain null; null for a null map, which leaves the key unset. */
        private static Map<String, String> copy(Map<String, String> pairs) {
            if (pairs == null) {
                return null;
            }
            Map<String, String> copy = new LinkedHashMap<>(pairs);
            copy.keySet().removeIf(Objects::isNull);
            copy.values().removeIf(Objects::isNull);
            return copy;
        }

        /** Sets a key by its name in camelCase. An unknown name is logged as a warning with the nearest key. */
        public Builder set(String key, Object value) {
            values.put(key, value);
            return this;
        }

        /** An immutable copy of the settings so far. */
        public SpanprofConfig build() {
            return new SpanprofConfig(Collections.unmodifiableMap(new LinkedHashMap<>(values)));
        }

        public Builder enabled(boolean value) {
            return set("enabled", value);
        }

        public Builder serviceName(String value) {
            return set("serviceName", value);
        }

        public Builder resourceAttributes(Map<String, String> value) {
            return set("resourceAttributes", copy(value));
        }

        public Builder tags(Map<String, String> value) {
            return set("tags", copy(value));
        }

        public Builder sampleRate(int hz) {
            return set("sampleRate", hz);
        }

        public Builder clock(String value) {
            return set("clock", value);
        }

        public Builder cpu(boolean value) {
            return set("cpu", value);
        }

        public Builder wall(boolean value) {
            return set("wall", value);
        }

        public Builder wallRate(int hz) {
            return set("wallRate", hz);
        }

        public Builder profiles(String value) {
            return set("profiles", value);
        }

        public Builder gc(boolean value) {
            return set("gc", value);
        }

        public Builder heap(boolean value) {
            return set("heap", value);
        }

        public Builder heapInterval(long bytes) {
            return set("heapInterval", bytes);
        }

        public Builder heapLiveSamples(int samples) {
            return set("heapLiveSamples", samples);
        }

        public Builder heapPeakDirectory(String directory) {
            return set("heapPeakDirectory", directory);
        }

        public Builder lock(boolean value) {
            return set("lock", value);
        }

        public Builder lockThreshold(Duration value) {
            return set("lockThreshold", value);
        }

        public Builder offCpu(boolean value) {
            return set("offCpu", value);
        }

        public Builder threads(boolean value) {
            return set("threads", value);
        }

        public Builder uploadInterval(Duration value) {
            return set("uploadInterval", value);
        }

        public Builder maxStackDepth(int frames) {
            return set("maxStackDepth", frames);
        }

        /** {@code off}, {@code on} or {@code all}. */
        public Builder nativeFrames(String value) {
            return set("nativeFrames", value);
        }

        public Builder keepTimestamps(boolean value) {
            return set("keepTimestamps", value);
        }

        public Builder requests(boolean value) {
            return set("requests", value);
        }

        public Builder retention(String value) {
            return set("retention", value);
        }

        public Builder tailDuration(Duration value) {
            return set("tailDuration", value);
        }

        /** A number of seconds, {@code p99} or {@code none}. */
        public Builder tailDuration(String value) {
            return set("tailDuration", value);
        }

        public Builder tailCpuShare(double value) {
            return set("tailCpuShare", value);
        }

        public Builder tailAllocatedBytes(long value) {
            return set("tailAllocatedBytes", value);
        }

        public Builder tailErrors(boolean value) {
            return set("tailErrors", value);
        }

        public Builder endpoint(String url) {
            return set("endpoint", url);
        }

        public Builder protocol(String value) {
            return set("protocol", value);
        }

        public Builder headers(Map<String, String> value) {
            return set("headers", copy(value));
        }

        public Builder compression(String value) {
            return set("compression", value);
        }

        public Builder timeout(Duration value) {
            return set("timeout", value);
        }

        public Builder certificate(String file) {
            return set("certificate", file);
        }

        public Builder clientKey(String file) {
            return set("clientKey", file);
        }

        public Builder clientCertificate(String file) {
            return set("clientCertificate", file);
        }

        public Builder insecure(boolean value) {
            return set("insecure", value);
        }

        public Builder link(String value) {
            return set("link", value);
        }

        public Builder destinations(List<? extends Map<String, ?>> value) {
            return set("destinations", value == null ? null : new ArrayList<>(value));
        }

        public Builder fileDirectory(String directory) {
            return set("fileDirectory", directory);
        }

        public Builder metrics(boolean enabled) {
            return set("metrics", enabled);
        }

        public Builder metricsInterval(Duration value) {
            return set("metricsInterval", value);
        }

        public Builder metricsEndpoint(String url) {
            return set("metricsEndpoint", url);
        }

        public Builder metricsHeaders(Map<String, String> value) {
            return set("metricsHeaders", copy(value));
        }

        public Builder redaction(boolean value) {
            return set("redaction", value);
        }

        public Builder redactionRules(List<? extends Map<String, ?>> rules) {
            return set("redactionRules", rules == null ? null : new ArrayList<>(rules));
        }

        public Builder redactionHashKey(String key) {
            return set("redactionHashKey", key);
        }

        public Builder output(String file) {
            return set("output", file);
        }

        public Builder fileKeep(int files) {
            return set("fileKeep", files);
        }

        public Builder fileMaxAge(Duration value) {
            return set("fileMaxAge", value);
        }

        public Builder fileMaxBytes(long bytes) {
            return set("fileMaxBytes", bytes);
        }

        /** Prefixes of packages of own code, such as {@code com.example.}. */
        public Builder ownCode(List<String> prefixes) {
            return set("ownCode", prefixes == null ? null : new ArrayList<>(prefixes));
        }

        public Builder pull(String address) {
            return set("pull", address);
        }

        public Builder pullToken(String token) {
            return set("pullToken", token);
        }

        public Builder queueMaxBytes(long value) {
            return set("queueMaxBytes", value);
        }

        public Builder bufferDirectory(String directory) {
            return set("bufferDirectory", directory);
        }

        public Builder bufferMaxBytes(long bytes) {
            return set("bufferMaxBytes", bytes);
        }

        public Builder maxProfileSize(int bytes) {
            return set("maxProfileSize", bytes);
        }

        public Builder stopTimeout(Duration value) {
            return set("stopTimeout", value);
        }

        public Builder threadLabels(boolean value) {
            return set("threadLabels", value);
        }

        public Builder inheritThreads(boolean value) {
            return set("inheritThreads", value);
        }

        public Builder signals(boolean value) {
            return set("signals", value);
        }

        public Builder cpuBudget(double share) {
            return set("cpuBudget", share);
        }

        public Builder sampleRateMax(int hz) {
            return set("sampleRateMax", hz);
        }

        public Builder adaptiveThreshold(double share) {
            return set("adaptiveThreshold", share);
        }

        public Builder loadShedding(boolean on) {
            return set("loadShedding", on);
        }

        public Builder loadSheddingThreshold(double share) {
            return set("loadSheddingThreshold", share);
        }

        public Builder configFile(String file) {
            return set("configFile", file);
        }

        public Builder cpuDutyCycle(String value) {
            return set("cpuDutyCycle", value);
        }

        public Builder heapDutyCycle(String value) {
            return set("heapDutyCycle", value);
        }
    }
}
