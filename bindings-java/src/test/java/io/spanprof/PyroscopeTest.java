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

/** The documented snippets of Pyroscope's agent with renamed imports. */
class PyroscopeTest {
    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static String labels() {
        LongBuffer scope = InheritedScope.words();
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
                .setBasicAuthUser("me")
                .setBasicAuthPassword("secret")
                .build();
        assertEquals("{\"serviceName\":\"checkout\",\"endpoint\":\"http://127.0.0.1:4040\",\"sampleRate\":100,"
                + "\"wall\":true,\"cpu\":false,\"headers\":{\"authorization\":\"Basic bWU6c2VjcmV0\"}}",
                config.translated().toJson());
        assertFalse(config.toString().contains("secret"), config::toString);
    }

    @Test
    void nullSettingsStayUnchangedAndOthersAreReplaced() {
        Config.Builder builder = new Config.Builder().setServerAddress(null).setTenantID(null).setAuthToken(null)
                .setHTTPHeaders(null).setLabels(null).setProfilingAlloc("").setProfilingEvent(EventType.WALL)
                .setUploadInterval(Duration.ofSeconds(5)).addHTTPHeader("x-one", "1");
        Config first = builder.build();
        Config second = builder.setProfilingEvent(EventType.CTIMER).setTenantID("team").build();
        assertEquals("{\"wall\":true,\"cpu\":false,\"uploadInterval\":5.0,\"headers\":{\"x-one\":\"1\"}}",
                first.translated().toJson());
        assertEquals("{\"uploadInterval\":5.0,\"headers\":{\"x-one\":\"1\",\"x-scope-orgid\":\"team\"}}",
                second.translated().toJson());
        assertEquals("{}", Config.build().translated().toJson());
        for (String interval : List.of("512k", "524288", "512K ")) {
            assertEquals("{\"heap\":true,\"heapInterval\":524288}",
                    new Config.Builder().setProfilingAlloc(interval).build().translated().toJson());
        }
        for (String wrong : List.of("often", "k", "-1", "99999999999999g")) {
            assertEquals("{}", new Config.Builder().setProfilingAlloc(wrong).build().translated().toJson(), wrong);
        }
        for (String threshold : List.of("10ms", "10000us", " 10000000 ", "10000000ns")) {
            assertEquals("{\"lock\":true,\"lockThreshold\":0.01}",
                    new Config.Builder().setProfilingLock(threshold).build().translated().toJson());
        }
        for (String wrong : List.of("", "long", "-1", "2h", "3601s", "99999999999999ns")) {
            assertEquals("{}", new Config.Builder().setProfilingLock(wrong).build().translated().toJson(), wrong);
        }
        assertEquals("{\"heap\":true}", new Config.Builder().setAllocLive(true).build().translated().toJson());
    }

    @Test
    void theDocumentedSnippetsRunWithRenamedImports(@TempDir Path profiles) throws Exception {
        List<String> output = Programs.run(Migrated.class, List.of("-Dspanprof.file.directory=" + profiles), new String[0]);
        assertEquals(1, Programs.number(output, "started"), output::toString);
        List<String> ignored = output.stream().filter(line -> line.contains("do nothing here")).toList();
        assertEquals(List.of("line WARN spanprof: settings of Pyroscope's agent that do nothing here: setFormat (profiles are sent as "
                + "OTLP)"), ignored, output::toString);
        assertEquals(1, output.stream().filter(line -> line.startsWith("line INFO") && line.contains("first window")).count(),
                output::toString);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        assertAllSamplesHave(samples, "wrapped", Map.of("controller", "slow_controller"));
        assertAllSamplesHave(samples, "scoped", Map.of("request_id", "7"));
        assertAllSamplesHave(samples, "constant", Map.of("path", "/foo/bar", "method", "GET"));
        assertAllSamplesHave(samples, "plain", Map.of());
    }

    /** Asserts that all samples of a method have these labels of its scopes, the static labels, and no others. */
    private static void assertAllSamplesHave(List<ProfileFile.Sample> samples, String method, Map<String, String> expected) {
        List<ProfileFile.Sample> of =
                samples.stream().filter(sample -> sample.has(Migrated.class.getName() + "." + method)).toList();
        assertFalse(of.isEmpty(), () -> "no samples of " + method);
        for (ProfileFile.Sample sample : of) {
            Map<String, String> labels = new TreeMap<>(sample.labels());
            assertEquals(Map.of("region", "eu", "team", "rides"), Map.of(
                    "region", labels.remove("region"), "team", labels.remove("team")), sample::toString);
            labels.keySet().removeIf(key -> key.startsWith("service."));
            assertEquals(expected, labels, () -> method + " " + sample);
        }
    }

    @Test
    void eachActivationOfAContextNeedsItsOwnDeactivation() {
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
    void warningsAreLoggedAtEveryLevel() {
        List<String> lines = new ArrayList<>();
        PyroscopeAgent.start(new PyroscopeAgent.Options.Builder(new Config.Builder()
                .setAgentEnabled(false).setLogLevel(Logger.Level.ERROR).setGcBeforeDump(true).build())
                .setLogger((level, format, arguments) -> lines.add(level + " " + String.format(format, arguments))).build());
        try {
            HostLog.warn("100 %");
        } finally {
            Spanprof.setLogger(null, null);
        }
        // Maven passes its own system properties, such as `-Dspanprof.library`, to the tests.
        lines.removeIf(line -> line.contains("unknown variable"));
        assertEquals(2, lines.size(), lines::toString);
        assertTrue(lines.get(0).startsWith("WARN spanprof:") && lines.get(0).contains("setGcBeforeDump"), lines::toString);
        assertEquals("WARN 100 %", lines.get(1));
    }

    @Test
    void aDisabledAgentDoesNotStart() {
        PyroscopeAgent.start(new Config.Builder().setAgentEnabled(false).build());
        assertFalse(PyroscopeAgent.isStarted());
        PyroscopeAgent.stop();
    }

    @Test
    void labelsWrapperReturnsTheValueOfItsWorkAndThrowsItsExceptions() throws Exception {
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
