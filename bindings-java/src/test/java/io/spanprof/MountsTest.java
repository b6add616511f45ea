package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Mounts;
import java.nio.LongBuffer;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;

/** Mount events of virtual threads: enabled only while a profiler runs. */
@EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
class MountsTest {
    @TempDir
    Path profiles;

    @Test
    void mountEventsAreEnabledOnlyWhileTheProfilerRunsAndAScopeOpenedBeforeItIsSampled() throws Exception {
        List<String> output = Programs.run(Mounts.class, List.of(), profiles.toString());
        assertEquals(0, Programs.number(output, "before_start"), output::toString);
        assertEquals(1, Programs.number(output, "labelled"), "scope words of a thread that ended before the start are released");
        assertTrue(Programs.number(output, "while_running") >= 20, output::toString);
        assertEquals(0, Programs.number(output, "while_stopped"), output::toString);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        long all = ProfileFile.sum(samples, sample -> sample.has(Mounts.class.getName() + ".works"));
        long labelled = ProfileFile.sum(samples, sample -> sample.has(Mounts.class.getName() + ".works")
                && "stays".equals(sample.labels().get("job")));
        assertTrue(all >= 50_000_000, () -> "only " + all + " ns");
        // A sample between the mount and its event has no label: of 21 mounts, at most two samples of 4 ms.
        assertTrue(labelled >= 0.95 * all, () -> labelled + " of " + all + " ns labelled: " + output);
    }

    private static void runOnVirtualThread(Runnable work) throws Exception {
        AtomicReference<Throwable> failed = new AtomicReference<>();
        // By reflection: the tests are compiled for Java 17.
        Thread thread = (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, (Runnable) () -> {
            try {
                work.run();
            } catch (Throwable wrong) {
                failed.set(wrong);
            }
        });
        thread.join(30_000);
        assertFalse(thread.isAlive());
        assertNull(failed.get(), () -> String.valueOf(failed.get()));
    }

    @Test
    void aVirtualThreadIsTrackedAgainWhenItOpensAScopeAfterTrackingStopped() throws Exception {
        assertTrue(Spanprof.start(
                SpanprofConfig.builder().serviceName("mounts").fileDirectory(profiles.toString()).build()));
        try {
            runOnVirtualThread(() -> {
                Spanprof.tagWrapper(Map.of("a", "1"), () -> assertEquals(Map.of("a", "1"), ScopesTest.labels()));
                LongBuffer before = InheritedScope.words();
                assertSame(before, InheritedScope.words());
                // The thread that reads log lines disables mount events if no virtual thread has a context.
                Thread log = new Thread(() -> Native.logLines(0));
                log.start();
                try {
                    log.join();
                } catch (InterruptedException interrupted) {
                    throw new AssertionError(interrupted);
                }
                assertNotSame(before, InheritedScope.words(), "it is no longer tracked");
                Spanprof.tagWrapper(Map.of("b", "2"), () -> assertEquals(Map.of("b", "2"), ScopesTest.labels()));
                assertEquals(Map.of(), ScopesTest.labels());
            });
        } finally {
            Spanprof.stop();
        }
    }
}
