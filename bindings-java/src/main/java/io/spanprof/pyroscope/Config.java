package io.spanprof.pyroscope;

import io.spanprof.SpanprofConfig;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Pyroscope's settings under its own names; null leaves a setting unchanged. Those that {@link Builder} does not set are read
 * from the environment, properties and files at the start.
 */
public final class Config {
    final Map<String, String> labels;
    /** The configured log level, or null. */
    final Logger.Level logLevel;
    /** Settings without effect, by name, each with its reason. */
    final Map<String, String> ignored;
    private final Map<String, Object> keys;

    private Config(Builder builder) {
        labels = builder.labels;
        logLevel = builder.logLevel;
        ignored = new LinkedHashMap<>(builder.ignored);
        keys = new LinkedHashMap<>(builder.keys);
        Map<String, String> headers = builder.allHeaders();
        if (!headers.isEmpty()) {
            keys.put("headers", headers);
        }
    }

    /** A configuration without settings: those of the environment, the properties and the files apply. */
    public static Config build() {
        return new Builder().build();
    }

    /** The settings under spanprof's names. */
    public SpanprofConfig translated() {
        return translated(Collections.emptyMap());
    }

    /** The settings under spanprof's names, with additional labels on every sample. */
    SpanprofConfig translated(Map<String, String> added) {
        Map<String, Object> all = new LinkedHashMap<>(keys);
        Map<String, String> tags = new LinkedHashMap<>(labels);
        tags.putAll(added);
        if (!tags.isEmpty()) {
            all.put("tags", tags);
        }
        return SpanprofConfig.of(all);
    }

    /** Keys only: values may be secret. */
    @Override
    public String toString() {
        return translated().toString();
    }

    /** Collects settings. */
    public static final class Builder {
        private static final Pattern DURATION = Pattern.compile("(\\d{1,13})(ns|us|ms|s|)");
        /** Values by spanprof key. */
        private final Map<String, Object> keys = new LinkedHashMap<>();
        private final Map<String, String> headers = new LinkedHashMap<>();
        private final Map<String, String> ignored = new LinkedHashMap<>();
        private Map<String, String> labels = Collections.emptyMap();
        private Logger.Level logLevel;
        private String tenant = "";
        private String token = "";
        private String user = "";
        private String password = "";

        private Builder set(String key, Object value) {
            if (value != null) {
                keys.put(key, value);
            }
            return this;
        }

        /** Records that a setting has no effect, unless it is one that needs none. */
        private Builder ignore(String setter, boolean isIgnored, String reason) {
            if (isIgnored) {
                ignored.put(setter, reason);
            } else {
                ignored.remove(setter);
            }
            return this;
        }

        /** The bytes of {@code 512k}, {@code 2m} or a bare number; -1 for other text. */
        private static long bytesOf(String text) {
            String normalized = text.trim().toLowerCase(Locale.ROOT);
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
            Matcher matcher = DURATION.matcher(text.trim().toLowerCase(Locale.ROOT));
            if (!matcher.matches()) {
                return null;
            }
            Duration duration = Duration.of(Long.parseLong(matcher.group(1)), unitOf(matcher.group(2)));
            return duration.compareTo(Duration.ofHours(1)) > 0 ? null : duration;
        }

        private static ChronoUnit unitOf(String name) {
            switch (name) {
                case "s":
                    return ChronoUnit.SECONDS;
                case "ms":
                    return ChronoUnit.MILLIS;
                case "us":
                    return ChronoUnit.MICROS;
                default:
                    return ChronoUnit.NANOS;
            }
        }

        private static boolean isNotEmpty(String value) {
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
            if (value == null) {
                return this;
            }
            long hertz = Math.round(1 / Math.max(1e-9, value.getSeconds() + value.getNano() / 1e9));
            return set("sampleRate", Math.min(10_000, Math.max(1, hertz)));
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
            return ignore("setProfilingEvent", isNeither, "CPU time is profiled; see setProfilingAlloc and setProfilingLock");
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
            labels = value == null ? Collections.emptyMap() : Collections.unmodifiableMap(new HashMap<>(value));
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
            tenant = value == null ? tenant : value;
            return this;
        }

        public Builder setAuthToken(String value) {
            token = value == null ? token : value;
            return this;
        }

        public Builder setBasicAuthUser(String value) {
            user = value == null ? user : value;
            return this;
        }

        public Builder setBasicAuthPassword(String value) {
            password = value == null ? password : value;
            return this;
        }

        /** The log level: INFO and lower log all lines, else only warnings. */
        public Builder setLogLevel(Logger.Level value) {
            logLevel = value == null ? logLevel : value;
            return this;
        }

        /** Directory for the unpacked library, in place of the VM's temporary directory. */
        public Builder setTmpDir(String value) {
            if (isNotEmpty(value)) {
                try {
                    System.setProperty("spanprof.libraryDirectory", value);
                } catch (SecurityException denied) {
                    return ignore("setTmpDir", true, "the security manager denies it");
                }
            }
            return this;
        }

        public Builder setProfilingAlloc(String value) {
            if (isNotEmpty(value)) {
                long bytes = bytesOf(value);
                if (bytes < 0) {
                    return ignore("setProfilingAlloc", true, "an interval such as 512k was expected");
                }
                keys.put("heap", true);
                keys.put("heapInterval", Math.min(64L << 20, Math.max(1, bytes)));
            }
            return this;
        }

        public Builder setProfilingLock(String value) {
            if (isNotEmpty(value)) {
                Duration threshold = durationOf(value);
                if (threshold == null) {
                    return ignore("setProfilingLock", true, "a duration such as 10ms was expected");
                }
                keys.put("lock", true);
                keys.put("lockThreshold", threshold);
            }
            return this;
        }

        public Builder setAllocLive(boolean value) {
            return set("heap", value ? true : null);
        }

        public Builder setGcBeforeDump(boolean value) {
            return ignore("setGcBeforeDump", value, "no collection is requested");
        }

        public Builder setFormat(Format value) {
            return ignore("setFormat", value == Format.JFR, "profiles are sent as OTLP");
        }

        public Config build() {
            return new Config(this);
        }

        private Map<String, String> allHeaders() {
            Map<String, String> all = new LinkedHashMap<>(headers);
            if (!tenant.isEmpty()) {
                all.put("x-scope-orgid", tenant);
            }
            if (!token.isEmpty()) {
                all.put("authorization", "Bearer " + token);
            }
            if (!user.isEmpty() || !password.isEmpty()) {
                byte[] pair = (user + ":" + password).getBytes(StandardCharsets.UTF_8);
                all.put("authorization", "Basic " + Base64.getEncoder().encodeToString(pair));
            }
            return all;
        }
    }
}
