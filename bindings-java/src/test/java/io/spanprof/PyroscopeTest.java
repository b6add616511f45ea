package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Migrated;
import io.spanprof.pyroscope.Config;
import io.spanprof.pyroscope.ConstantContext;
import io.spanprof.pyroscope.EventType;
import io.spanprof.pyroscope.Format;
import io.spanprof.pyroscope.LabelsSet;
import io.spanprof.pyroscope.Logger;
import io.spanprof.pyroscope.ProfilerType;
import io.spanprof.pyroscope.Pyroscope;
import io.spanprof.pyroscope.PyroscopeAgent;
import io.spanprof.pyroscope.ScopedContext;
import java.nio.LongBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The documented snippets of Pyroscope's agent, with their imports renamed. */
class PyroscopeTest {
    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static String labels() {
        LongBuffer scope = ThreadScope.current();
        return ThreadScope.isOpen(scope) ? Packed.unpack(Native.labelsOf((int) ThreadScope.word(scope, 0))).toString() : "[]";
    }

    @Test
    void settingsAreTranslated() {
        Config config = new Config.Builder()
                .setApplicationName("checkout")
                .setServerAddress("http://127.0.0.1:4040")
                .setProfilingInterval(Duration.ofMillis(10))
                .setProfilingEvent(EventType.WALL)
                .setFormat(Format.JFR)
                .setProfilerType(ProfilerType.ASYNC)
                .setSamplingEventOrder(List.of(EventType.CPU, EventType.ALLOC))
                .setPushQueueCapacity(8)
                .setBasicAuthUser("me")
                .setBasicAuthPassword("secret")
                .build();
        assertEquals("{\"serviceName\":\"checkout\",\"endpoint\":\"http://127.0.0.1:4040\",\"sampleRate\":100,"
                + "\"wall\":true,\"cpu\":false,\"headers\":{\"authorization\":\"Basic bWU6c2VjcmV0\"}}",
                config.translated().toJson());
        assertFalse(config.toString().contains("secret"), config::toString);
    }

    @Test
    void settingsThatAreNotGivenStayAndOthersAreTakenOver() {
        Config first = new Config.Builder().setServerAddress(null).setTenantID(null).setAuthToken(null).setHTTPHeaders(null)
                .setLabels(null).setProfilingAlloc("").setProfilingEvent(EventType.WALL).setUploadInterval(Duration.ofSeconds(5))
                .addHTTPHeader("x-one", "1").build();
        Config second = first.newBuilder().setProfilingEvent(EventType.fromId("ctimer")).setTenantID("team").build();
        assertEquals("{\"wall\":true,\"cpu\":false,\"uploadInterval\":5.0,\"headers\":{\"x-one\":\"1\"}}",
                first.translated().toJson());
        assertEquals("{\"uploadInterval\":5.0,\"headers\":{\"x-one\":\"1\",\"x-scope-orgid\":\"team\"}}",
                second.translated().toJson());
        assertEquals("{}", Config.build().translated().toJson());
        assertThrows(IllegalArgumentException.class, () -> EventType.fromId("nothing"));
    }

    @Test
    void theDocumentedSnippetsRunWithTheirImportsRenamed(@TempDir Path profiles) throws Exception {
        List<String> said = Programs.run(Migrated.class, List.of("-Dspanprof.file.directory=" + profiles), new String[0]);
        assertEquals(1, Programs.number(said, "started"), said::toString);
        List<String> ignored = said.stream().filter(line -> line.contains("do nothing here")).toList();
        assertEquals(List.of("line WARN spanprof: settings of Pyroscope's agent that do nothing here: setFormat (profiles travel as "
                + "OTLP), setExporter (profiles go to the destinations of the configuration), setScheduler (uploadInterval says when "
                + "a window ends)"), ignored, said::toString);
        assertEquals(1, said.stream().filter(line -> line.startsWith("line INFO") && line.contains("first window")).count(),
                said::toString);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        only(samples, "wrapped", Map.of("controller", "slow_controller"));
        only(samples, "scoped", Map.of("request_id", "7"));
        only(samples, "constant", Map.of("path", "/foo/bar", "method", "GET"));
        only(samples, "plain", Map.of());
    }

    /** All samples of a method of the program have these labels of its scopes and no others, and those of every sample. */
    private static void only(List<ProfileFile.Sample> samples, String method, Map<String, String> given) {
        List<ProfileFile.Sample> of =
                samples.stream().filter(sample -> sample.has(Migrated.class.getName() + "." + method)).toList();
        assertFalse(of.isEmpty(), () -> "no samples of " + method);
        for (ProfileFile.Sample sample : of) {
            Map<String, String> labels = new TreeMap<>(sample.labels());
            assertEquals(Map.of("region", "eu", "team", "rides"), Map.of(
                    "region", labels.remove("region"), "team", labels.remove("team")), sample::toString);
            labels.keySet().removeIf(key -> key.startsWith("service."));
            assertEquals(given, labels, () -> method + " " + sample);
        }
    }

    @Test
    void aContextThatIsSwitchedOnAgainIsSwitchedOffAsOften() {
        ConstantContext context = ConstantContext.of(new LabelsSet("a", "1"));
        context.deactivate();
        context.activate();
        try (ScopedContext inner = new ScopedContext(new LabelsSet("b", "2"))) {
            context.activate();
            assertEquals("[a, 1, b, 2]", labels());
            context.deactivate();
            assertEquals("[a, 1, b, 2]", labels());
        }
        assertEquals("[a, 1]", labels());
        context.deactivate();
        assertEquals("[]", labels());
        context.deactivate();
        assertEquals("[]", labels());
    }

    @Test
    void warningsAreKeptBackByNoLevel() {
        List<String> lines = new ArrayList<>();
        PyroscopeAgent.start(new PyroscopeAgent.Options.Builder(new Config.Builder()
                .setAgentEnabled(false).setLogLevel(Logger.Level.ERROR).setGcBeforeDump(true).build())
                .setLogger((level, format, words) -> lines.add(level + " " + String.format(format, words))).build());
        try {
            HostLog.warn("100 %");
        } finally {
            Spanprof.setLogger(null);
        }
        assertEquals(2, lines.size(), lines::toString);
        assertTrue(lines.get(0).startsWith("WARN spanprof:") && lines.get(0).contains("setGcBeforeDump"), lines::toString);
        assertEquals("WARN 100 %", lines.get(1));
    }

    @Test
    void startedWithTheAgentSwitchedOffNothingRuns() {
        PyroscopeAgent.start(new Config.Builder().setAgentEnabled(false).build());
        assertFalse(PyroscopeAgent.isStarted());
        PyroscopeAgent.stop();
    }

    @Test
    void labelsWrapTheirWorkAndPassItsValueAndExceptionsThrough() throws Exception {
        LabelsSet labels = new LabelsSet("controller", "slow", "size", 7);
        assertEquals("[controller, slow, size, 7]", Pyroscope.LabelsWrapper.run(labels, () -> labels()));
        Pyroscope.LabelsWrapper.run(labels, () -> {
            assertEquals("[controller, slow, size, 7]", labels());
        });
        assertThrows(TimeoutException.class, () -> Pyroscope.LabelsWrapper.run(labels, () -> {
            throw new TimeoutException();
        }));
        try (ScopedContext context = new ScopedContext(new LabelsSet(Map.of("a", "1")))) {
            assertEquals("[a, 1]", labels());
        }
        assertEquals("[]", labels());
        assertThrows(IllegalArgumentException.class, () -> new LabelsSet("a"));
    }
}
