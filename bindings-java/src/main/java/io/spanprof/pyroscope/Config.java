package io.spanprof.pyroscope;

import io.spanprof.SpanprofConfig;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Pyroscope's settings under its own names. What has no meaning here is accepted and does nothing. */
public final class Config {
    private final SpanprofConfig translated;

    private Config(SpanprofConfig translated) {
        this.translated = translated;
    }

    /** The settings under our names. */
    public SpanprofConfig translated() {
        return translated;
    }

    /** Keys only: values may be secret. */
    @Override
    public String toString() {
        return translated.toString();
    }

    /** Collects settings. */
    public static final class Builder {
        private final SpanprofConfig.Builder ours = SpanprofConfig.builder();
        private final Map<String, String> headers = new LinkedHashMap<>();
        private String user = "";
        private String password = "";

        public Builder setAgentEnabled(boolean value) {
            ours.enabled(value);
            return this;
        }

        public Builder setApplicationName(String value) {
            ours.serviceName(value);
            return this;
        }

        public Builder setServerAddress(String value) {
            ours.endpoint(value);
            return this;
        }

        public Builder setProfilingInterval(Duration value) {
            long hz = Math.round(1e9 / Math.max(1, value.toNanos()));
            ours.sampleRate((int) Math.min(10_000, Math.max(1, hz)));
            return this;
        }

        public Builder setProfilingEvent(EventType value) {
            if (value == EventType.WALL) {
                ours.wall(true).cpu(false);
            }
            return this;
        }

        public Builder setUploadInterval(Duration value) {
            ours.uploadInterval(value);
            return this;
        }

        public Builder setProfileExportTimeout(Duration value) {
            ours.timeout(value);
            return this;
        }

        public Builder setJavaStackDepthMax(int value) {
            ours.maxStackDepth(Math.min(2048, Math.max(16, value)));
            return this;
        }

        public Builder setLabels(Map<String, String> value) {
            ours.tags(value);
            return this;
        }

        public Builder setHTTPHeaders(Map<String, String> value) {
            headers.putAll(value);
            return this;
        }

        public Builder setTenantID(String value) {
            headers.put("x-scope-orgid", value);
            return this;
        }

        public Builder setAuthToken(String value) {
            headers.put("authorization", "Bearer " + value);
            return this;
        }

        public Builder setBasicAuthUser(String value) {
            user = value;
            return this;
        }

        public Builder setBasicAuthPassword(String value) {
            password = value;
            return this;
        }

        /** Allocations are not profiled. */
        public Builder setProfilingAlloc(String value) {
            return this;
        }

        /** Locks are not profiled. */
        public Builder setProfilingLock(String value) {
            return this;
        }

        /** Profiles travel as OTLP. */
        public Builder setFormat(Format value) {
            return this;
        }

        /** All that is asked for is profiled all the time. */
        public Builder setSamplingEventOrder(List<EventType> value) {
            return this;
        }

        /** As {@link #setSamplingEventOrder}. */
        public Builder setSamplingDuration(Duration value) {
            return this;
        }

        /** There is one engine. */
        public Builder setProfilerType(ProfilerType value) {
            return this;
        }

        /** Allocations are not profiled. */
        public Builder setAllocLive(boolean value) {
            return this;
        }

        /** As {@link #setAllocLive}. */
        public Builder setGcBeforeDump(boolean value) {
            return this;
        }

        /** The queue is bounded in bytes: {@code queueMaxBytes}. */
        public Builder setPushQueueCapacity(int value) {
            return this;
        }

        /** OTLP says how often a request is repeated. */
        public Builder setIngestMaxRetries(int value) {
            return this;
        }

        /** Requests are compressed as {@code compression} says. */
        public Builder setCompressionLevelJFR(int value) {
            return this;
        }

        /** As {@link #setCompressionLevelJFR}. */
        public Builder setCompressionLevelLabels(int value) {
            return this;
        }

        /** Options of another engine. */
        public Builder setAPLogLevel(String value) {
            return this;
        }

        /** As {@link #setAPLogLevel}. */
        public Builder setAPExtraArguments(String value) {
            return this;
        }

        /** Where the library may be written; in place of the VM's own temporary directory. */
        public Builder setTmpDir(String value) {
            if (value != null) {
                System.setProperty("spanprof.libraryDirectory", value);
            }
            return this;
        }

        public Config build() {
            if (!user.isEmpty() || !password.isEmpty()) {
                byte[] pair = (user + ":" + password).getBytes(StandardCharsets.UTF_8);
                headers.put("authorization", "Basic " + Base64.getEncoder().encodeToString(pair));
            }
            if (!headers.isEmpty()) {
                ours.headers(headers);
            }
            return new Config(ours.build());
        }
    }
}
