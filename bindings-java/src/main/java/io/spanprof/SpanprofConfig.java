package io.spanprof;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Settings given in code. What is not given comes from {@code SPANPROF_*} and {@code OTEL_*} variables, the
 * configuration file and the defaults; docs/configuration.md says what each key means.
 */
public final class SpanprofConfig {
    private final Map<String, Object> values;

    private SpanprofConfig(Map<String, Object> values) {
        this.values = values;
    }

    /** Nothing is set yet. */
    public static Builder builder() {
        return new Builder();
    }

    /** Keys in camelCase, as {@link Builder#set} takes them. */
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

        /** Pairs with a null on either side are left out; a map that is null is a key that is not set. */
        private static Map<String, String> copy(Map<String, String> pairs) {
            if (pairs == null) {
                return null;
            }
            Map<String, String> copy = new LinkedHashMap<>(pairs);
            copy.keySet().removeIf(Objects::isNull);
            copy.values().removeIf(Objects::isNull);
            return copy;
        }

        /** Any key by its name in camelCase. A name that is no key is a warning that tells the nearest one. */
        public Builder set(String key, Object value) {
            values.put(key, value);
            return this;
        }

        /** What is set so far, as settings of their own. */
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

        public Builder wallMaxThreads(int threads) {
            return set("wallMaxThreads", threads);
        }

        public Builder uploadInterval(Duration value) {
            return set("uploadInterval", value);
        }

        public Builder maxStackDepth(int frames) {
            return set("maxStackDepth", frames);
        }

        public Builder maxStacks(int value) {
            return set("maxStacks", value);
        }

        public Builder maxLabelSets(int value) {
            return set("maxLabelSets", value);
        }

        public Builder maxContexts(int value) {
            return set("maxContexts", value);
        }

        public Builder maxLabelValueBytes(int value) {
            return set("maxLabelValueBytes", value);
        }

        public Builder keepTimestamps(boolean value) {
            return set("keepTimestamps", value);
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

        public Builder instanceAttributes(boolean value) {
            return set("instanceAttributes", value);
        }

        public Builder labelNames(String value) {
            return set("labelNames", value);
        }

        public Builder destinations(List<? extends Map<String, ?>> value) {
            return set("destinations", value == null ? null : new ArrayList<>(value));
        }

        public Builder fileDirectory(String directory) {
            return set("fileDirectory", directory);
        }

        public Builder output(String file) {
            return set("output", file);
        }

        public Builder fileKeep(int files) {
            return set("fileKeep", files);
        }

        public Builder queueMaxBytes(long value) {
            return set("queueMaxBytes", value);
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

        public Builder serviceNameAttribute(boolean value) {
            return set("serviceNameAttribute", value);
        }

        public Builder inheritThreads(boolean value) {
            return set("inheritThreads", value);
        }

        public Builder signals(boolean value) {
            return set("signals", value);
        }

        public Builder configFile(String file) {
            return set("configFile", file);
        }
    }
}
