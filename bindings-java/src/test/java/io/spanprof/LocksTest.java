package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Contends;
import io.spanprof.programs.ContendsRestarted;
import io.spanprof.programs.WaitsIdle;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Waits for locks of programs with known waiting times. */
class LocksTest {
    @TempDir
    Path profiles;

    /** Programs with many pinned virtual threads need a carrier for each. */
    private static final String CARRIERS = "-Djdk.virtualThreadScheduler.parallelism=8";

    private void theDelayIsThatOfTheProgram(String kind, String threads, String walk, String leaf) throws Exception {
        List<String> output =
                Programs.run(Contends.class, List.of(CARRIERS), profiles.toString(), kind, threads, walk, "60");
        List<String> methods = Stream.of("zero", "one", "two").map(name -> Contends.class.getName() + "." + name).toList();
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "lock");
        long delay = 0;
        long labeled = 0;
        long inHeap = 0;
        for (ProfileFile.Sample sample : samples) {
            for (int site = 0; site < methods.size(); site++) {
                // Threads that first use a class at the same time wait for each other in the class loader.
                boolean loads = sample.frames().stream().anyMatch(frame -> frame.function().contains("ClassLoader"));
                // A thread that was just mounted has its callers in the heap (docs/reference/java.md): the label says which ones.
                boolean isInHeap = sample.has("[frames_in_heap]") && methods.stream().noneMatch(sample::has)
                        && String.valueOf(site).equals(sample.labels().get("site"));
                if ((sample.has(methods.get(site)) || isInHeap) && !loads) {
                    // The VM locks an array while it initializes a class: the synchronizer's, on first use.
                    assertTrue(List.of(leaf, "int[]").contains(sample.leaf()), sample::toString);
                    String label = sample.labels().get("site");
                    assertTrue(label == null || label.equals(String.valueOf(site)), () -> "wrong label " + sample);
                    delay += sample.nanoseconds();
                    inHeap += isInHeap ? sample.nanoseconds() : 0;
                    labeled += label == null ? 0 : sample.nanoseconds();
                }
            }
        }
        double share = delay / (double) Programs.number(output, "waited_ns");
        // A thread that is preempted between its wakeup and its own reading of the clock makes the truth longer.
        assertTrue(share > 0.95 && share < 1.01, () -> share + " of the delay: " + output + samples);
        assertTrue(samples.stream().anyMatch(sample -> sample.leaf().equals(leaf)), samples::toString);
        assertTrue(inHeap < 0.2 * delay, inHeap + " of " + delay + " ns have callers in the heap");
        assertTrue(labeled >= 0.995 * delay, labeled + " of " + delay + " ns have a label");
        assertEquals(0, Programs.number(output, "lost"));
    }

    @ParameterizedTest
    @CsvSource({
        "monitor,auto,java.lang.Object",
        "monitor,vm,java.lang.Object",
        "lock,auto,java.util.concurrent.locks.ReentrantLock$NonfairSync",
        "lock,vm,java.util.concurrent.locks.ReentrantLock$NonfairSync",
        "readwrite,auto,java.util.concurrent.locks.ReentrantReadWriteLock$NonfairSync",
        "semaphore,auto,java.util.concurrent.Semaphore$NonfairSync",
        "stamped,auto,java.util.concurrent.locks.StampedLock",
    })
    void theDelayOfPlatformThreadsIsThatOfTheProgram(String kind, String walk, String leaf) throws Exception {
        theDelayIsThatOfTheProgram(kind, "platform", walk, leaf);
    }

    @ParameterizedTest
    @CsvSource({
        "monitor,auto,java.lang.Object",
        "lock,auto,java.util.concurrent.locks.ReentrantLock$NonfairSync",
        "lock,vm,java.util.concurrent.locks.ReentrantLock$NonfairSync",
    })
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void theDelayOfVirtualThreadsIsThatOfTheProgram(String kind, String walk, String leaf) throws Exception {
        theDelayIsThatOfTheProgram(kind, "virtual", walk, leaf);
    }

    private void idleWaitsAreNoContention(String threads) throws Exception {
        List<String> output = Programs.run(WaitsIdle.class, List.of(CARRIERS), profiles.toString(), threads);
        long delay = ProfileFile.sum(ProfileFile.readAll(profiles, "lock"), sample -> true);
        // The queue of a pool has a lock, for which its threads may wait shortly.
        assertTrue(delay < 0.05 * Programs.number(output, "idle_ns"), () -> delay + " ns: " + output);
    }

    @Test
    void idleWaitsOfPlatformThreadsAreNoContention() throws Exception {
        idleWaitsAreNoContention("platform");
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void idleWaitsOfVirtualThreadsAreNoContention() throws Exception {
        idleWaitsAreNoContention("virtual");
    }

    @ParameterizedTest
    @CsvSource({"G1,auto", "Serial,auto", "Z,auto", "G1,vm"})
    void theProgramIsUnaffectedWhileTheProfilesAreTurnedOnAndOff(String collector, String walk) throws Exception {
        List<String> output = Programs.run(ContendsRestarted.class,
                List.of(Programs.collector(collector), "-Xcheck:jni", CARRIERS), profiles.toString(), walk);
        assertEquals(0, Programs.number(output, "wrong"), output::toString);
        assertTrue(Programs.number(output, "waits") > 10, output::toString);
        assertFalse(output.stream().anyMatch(line -> line.contains("WARNING in native method")), output::toString);
        assertFalse(output.stream().anyMatch(line -> line.contains("Re-registering")), output::toString);
    }
}
