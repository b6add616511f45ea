package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.pyroscope.Config;
import io.spanprof.pyroscope.EventType;
import io.spanprof.pyroscope.Format;
import io.spanprof.pyroscope.LabelsSet;
import io.spanprof.pyroscope.ProfilerType;
import io.spanprof.pyroscope.Pyroscope;
import io.spanprof.pyroscope.PyroscopeAgent;
import io.spanprof.pyroscope.ScopedContext;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The documented snippets of Pyroscope's agent, with their imports renamed. */
class PyroscopeTest {
    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static String labels() {
        ByteBuffer scope = ThreadScope.current();
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
