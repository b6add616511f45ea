package io.spanprof.pyroscope;

import io.spanprof.SpanprofConfig;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Pyroscope's settings under its own names; null leaves a setting unchanged. Settings that have no equivalent are accepted
 * and have no effect; {@link PyroscopeAgent#start(Config)} lists them in one warning.
 *
 * <p>The fields contain the builder's values, and else the defaults of Pyroscope's agent. Settings from the environment,
 * properties and files are read at the start and are not in the fields.
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

    private final Builder builder;

    private Config(Builder builder) {
        this.builder = builder;
        agentEnabled = builder.valueOr("setAgentEnabled", true);
        applicationName = builder.value("setApplicationName", String.class);
        profilerType = builder.valueOr("setProfilerType", ProfilerType.ASYNC);
        profilingInterval = builder.valueOr("setProfilingInterval", Duration.ofMillis(10));
        profilingEvent = builder.valueOr("setProfilingEvent", EventType.ITIMER);
        profilingAlloc = builder.valueOr("setProfilingAlloc", "");
        profilingLock = builder.valueOr("setProfilingLock", "");
        samplingEventOrder = builder.valueOr("setSamplingEventOrder", (List<EventType>) null);
        uploadInterval = builder.valueOr("setUploadInterval", Duration.ofSeconds(10));
        javaStackDepthMax = builder.valueOr("setJavaStackDepthMax", 2048);
        logLevel = builder.valueOr("setLogLevel", Logger.Level.INFO);
        serverAddress = builder.valueOr("setServerAddress", "http://localhost:4040");
        authToken = builder.value("setAuthToken", String.class);
        jfrProfilerSettings = builder.value("setJFRProfilerSettings", String.class);
        format = builder.valueOr("setFormat", Format.JFR);
        pushQueueCapacity = builder.valueOr("setPushQueueCapacity", 8);
        labels = builder.labels;
        ingestMaxTries = builder.valueOr("setIngestMaxRetries", 8);
        compressionLevelJFR = builder.valueOr("setCompressionLevelJFR", 1);
        compressionLevelLabels = builder.valueOr("setCompressionLevelLabels", 1);
        allocLive = builder.valueOr("setAllocLive", false);
        gcBeforeDump = builder.valueOr("setGcBeforeDump", false);
        httpHeaders = Collections.unmodifiableMap(builder.headers);
        samplingDuration = builder.value("setSamplingDuration", Duration.class);
        profileExportTimeout = builder.valueOr("setProfileExportTimeout", Duration.ofSeconds(10));
        tenantID = builder.value("setTenantID", String.class);
        APLogLevel = builder.value("setAPLogLevel", String.class);
        APExtraArguments = builder.value("setAPExtraArguments", String.class);
        basicAuthUser = builder.value("setBasicAuthUser", String.class);
        basicAuthPassword = builder.value("setBasicAuthPassword", String.class);
        tmpDir = builder.value("setTmpDir", Path.class);
    }

    /** Samples per second. */
    public long profilingIntervalInHertz() {
        return hertz(profilingInterval);
    }

    private static long hertz(Duration period) {
        return Math.round(1 / Math.max(1e-9, period.getSeconds() + period.getNano() / 1e9));
    }

    /** A configuration without settings: those of the environment, the properties and the files apply. */
    public static Config build() {
        return new Builder().build();
    }

    /** A builder with these settings. */
    public Builder newBuilder() {
        return new Builder(this);
    }

    /** The settings under spanprof's names. */
    public SpanprofConfig translated() {
        return translated(Map.of());
    }

    /** The settings under spanprof's names, with additional labels on every sample. */
    SpanprofConfig translated(Map<String, String> labels) {
        Map<String, Object> keys = new LinkedHashMap<>(builder.keys);
        Map<String, String> all = new LinkedHashMap<>(builder.labels);
        all.putAll(labels);
        if (!all.isEmpty()) {
            keys.put("tags", all);
        }
        Map<String, String> headers = builder.allHeaders();
        if (!headers.isEmpty()) {
            keys.put("headers", headers);
        }
        return SpanprofConfig.of(keys);
    }

    /** The configured log level, or null. */
    Logger.Level configuredLogLevel() {
        return builder.value("setLogLevel", Logger.Level.class);
    }

    Ignored ignored() {
        return builder.ignored;
    }

    /** Keys only: values may be secret. */
    @Override
    public String toString() {
        return translated().toString();
    }

    /** Collects settings. */
    public static final class Builder {
        private static final Pattern DURATION = Pattern.compile("(\\d{1,13})(ns|us|ms|s|)");
        /** Values by setter name. */
        private final Map<String, Object> values = new HashMap<>();
        /** Values by spanprof key. */
        private final Map<String, Object> keys = new LinkedHashMap<>();
        private final Map<String, String> headers = new LinkedHashMap<>();
        private final Ignored ignored;
        private Map<String, String> labels = Map.of();

        public Builder() {
            ignored = new Ignored();
        }

        /** A builder with the settings of {@code config}. */
        public Builder(Config config) {
            Builder other = config.builder;
            values.putAll(other.values);
            keys.putAll(other.keys);
            headers.putAll(other.headers);
            ignored = new Ignored(other.ignored);
            labels = other.labels;
        }

        private <T> T value(String setter, Class<T> type) {
            return type.cast(values.get(setter));
        }

        private <T> T valueOr(String setter, T fallback) {
            @SuppressWarnings("unchecked") // The setter stored a value of this type.
            T value = (T) values.get(setter);
            return value == null ? fallback : value;
        }

        private Builder put(String setter, Object value) {
            if (value != null) {
                values.put(setter, value);
            }
            return this;
        }

        /** Stores a setting that has a spanprof key. */
        private Builder set(String setter, Object value, String key) {
            return set(setter, value, key, value);
        }

        private Builder set(String setter, Object value, String key, Object translated) {
            if (value != null) {
                keys.put(key, translated);
            }
            return put(setter, value);
        }

        /** Stores a setting that has no effect. */
        private Builder ignore(String setter, Object value, boolean isSet, String reason) {
            ignored.record(setter, isSet, reason);
            return put(setter, value);
        }

        /** The bytes of {@code 512k}, {@code 2m} or a bare number; -1 for other text. */
        private static long bytesOf(String text) {
            String normalized = text.strip().toLowerCase(Locale.ROOT);
            int power = normalized.isEmpty() ? 0 : Math.max(0, " kmg".indexOf(normalized.charAt(normalized.length() - 1)));
            String number = normalized.substring(0, normalized.length() - (power > 0 ? 1 : 0));
            try {
                return Math.multiplyExact(Long.parseLong(number), 1L << 10 * power);
            } catch (ArithmeticException | NumberFormatException e) {
                return -1;
            }
        }

        /** The duration of {@code 10ms}, {@code 1us} or a bare number of nanoseconds, at most an hour; else null. */
        private static Duration durationOf(String text) {
            Matcher matcher = DURATION.matcher(text.strip().toLowerCase(Locale.ROOT));
            if (!matcher.matches()) {
                return null;
            }
            ChronoUnit unit = switch (matcher.group(2)) {
                case "s" -> ChronoUnit.SECONDS;
                case "ms" -> ChronoUnit.MILLIS;
                case "us" -> ChronoUnit.MICROS;
                default -> ChronoUnit.NANOS;
            };
            Duration duration = Duration.of(Long.parseLong(matcher.group(1)), unit);
            return duration.compareTo(Duration.ofHours(1)) > 0 ? null : duration;
        }

        private static boolean isNotEmpty(String value) {
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
            return ignore("setProfilingEvent", value, isNeither,
                    "CPU time is profiled; see setProfilingAlloc and setProfilingLock");
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
            return put("setTenantID", value);
        }

        public Builder setAuthToken(String value) {
            return put("setAuthToken", value);
        }

        public Builder setBasicAuthUser(String value) {
            return put("setBasicAuthUser", value);
        }

        public Builder setBasicAuthPassword(String value) {
            return put("setBasicAuthPassword", value);
        }

        /** The log level: INFO and lower log all lines, else only warnings. */
        public Builder setLogLevel(Logger.Level value) {
            return put("setLogLevel", value);
        }

        /** Directory for the unpacked library, in place of the VM's temporary directory. */
        public Builder setTmpDir(String value) {
            if (isNotEmpty(value)) {
                try {
                    System.setProperty("spanprof.libraryDirectory", value);
                    put("setTmpDir", Path.of(value));
                } catch (SecurityException denied) {
                    ignored.record("setTmpDir", true, "the security manager denies it");
                }
            }
            return this;
        }

        public Builder setProfilingAlloc(String value) {
            if (isNotEmpty(value)) {
                long bytes = bytesOf(value);
                if (bytes < 0) {
                    return ignore("setProfilingAlloc", value, true, "an interval such as 512k was expected");
                }
                keys.put("heap", true);
                keys.put("heapInterval", Math.min(64L << 20, Math.max(1, bytes)));
            }
            return put("setProfilingAlloc", value);
        }

        public Builder setProfilingLock(String value) {
            if (isNotEmpty(value)) {
                Duration threshold = durationOf(value);
                if (threshold == null) {
                    return ignore("setProfilingLock", value, true, "a duration such as 10ms was expected");
                }
                keys.put("lock", true);
                keys.put("lockThreshold", threshold);
            }
            return put("setProfilingLock", value);
        }

        public Builder setAllocLive(boolean value) {
            if (value) {
                keys.put("heap", true);
            }
            return put("setAllocLive", value);
        }

        public Builder setGcBeforeDump(boolean value) {
            return ignore("setGcBeforeDump", value, value, "no collection is requested");
        }

        public Builder setFormat(Format value) {
            return ignore("setFormat", value, value == Format.JFR, "profiles are sent as OTLP");
        }

        public Builder setSamplingEventOrder(List<EventType> value) {
            List<EventType> order = value == null ? null : List.copyOf(value);
            return ignore("setSamplingEventOrder", order, order != null, "profiling is continuous");
        }

        public Builder setSamplingDuration(Duration value) {
            return ignore("setSamplingDuration", value, value != null, "profiling is continuous");
        }

        public Builder setProfilerType(ProfilerType value) {
            return ignore("setProfilerType", value, value != null, "there is one engine");
        }

        public Builder setJFRProfilerSettings(String value) {
            return ignore("setJFRProfilerSettings", value, isNotEmpty(value), "there is one engine");
        }

        public Builder setAPLogLevel(String value) {
            return ignore("setAPLogLevel", value, isNotEmpty(value), "there is one engine");
        }

        public Builder setAPExtraArguments(String value) {
            return ignore("setAPExtraArguments", value, isNotEmpty(value), "there is one engine");
        }

        public Builder setPushQueueCapacity(int value) {
            return ignore("setPushQueueCapacity", value, true, "queueMaxBytes bounds the queue");
        }

        public Builder setIngestMaxRetries(int value) {
            return ignore("setIngestMaxRetries", value, true, "failed requests are retried for 15 minutes");
        }

        public Builder setCompressionLevelJFR(int value) {
            return ignore("setCompressionLevelJFR", value, true, "see compression");
        }

        public Builder setCompressionLevelLabels(int value) {
            return ignore("setCompressionLevelLabels", value, true, "see compression");
        }

        public Config build() {
            return new Config(new Builder(new Config(this)));
        }

        private Map<String, String> allHeaders() {
            Map<String, String> all = new LinkedHashMap<>(headers);
            if (!valueOr("setTenantID", "").isEmpty()) {
                all.put("x-scope-orgid", valueOr("setTenantID", ""));
            }
            if (!valueOr("setAuthToken", "").isEmpty()) {
                all.put("authorization", "Bearer " + valueOr("setAuthToken", ""));
            }
            String pair = valueOr("setBasicAuthUser", "") + ":" + valueOr("setBasicAuthPassword", "");
            if (pair.length() > 1) {
                byte[] bytes = pair.getBytes(StandardCharsets.UTF_8);
                all.put("authorization", "Basic " + Base64.getEncoder().encodeToString(bytes));
            }
            return all;
        }
    }
}
