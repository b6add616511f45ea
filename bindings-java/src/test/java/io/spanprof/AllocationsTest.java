package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Allocates;
import io.spanprof.programs.AllocatesInOrder;
import io.spanprof.programs.AllocatesLabeled;
import io.spanprof.programs.AllocatesRestarted;
import io.spanprof.programs.Retains;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Allocation profiles of programs with known allocations. */
class AllocationsTest {
    @TempDir
    Path profiles;

    private static final List<String> SITES = List.of("small", "medium", "large");

    @ParameterizedTest
    @CsvSource({"G1,auto", "Serial,auto", "Z,auto", "G1,vm"})
    void allocatedBytesOfEachSiteAreWithinSixDeviationsOfTheTruth(String collector, String walk) throws Exception {
        List<String> output = Programs.run(Allocates.class, List.of(Programs.collector(collector)), profiles.toString(),
                "524288", "3000", walk, "2");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "allocs");
        for (String site : SITES) {
            String method = Allocates.class.getName() + "." + site;
            List<ProfileFile.Sample> own = samples.stream().filter(sample -> sample.has(method)).toList();
            double estimate = own.stream().mapToLong(ProfileFile.Sample::bytes).sum();
            double truth = Programs.number(output, site + "_bytes");
            double deviations = (estimate - truth) / Programs.number(output, site + "_deviation");
            // All JDKs together check 60 estimates: of correct ones, one in 250 runs would be beyond four.
            assertTrue(Math.abs(deviations) < 6, () -> site + ": " + estimate + " of " + truth + ", " + deviations
                    + " standard deviations: " + output);
            for (ProfileFile.Sample sample : own) {
                assertEquals("byte[]", sample.leaf());
                assertEquals(method, sample.frames().get(1).function(), "the allocating method");
                assertTrue(sample.frames().get(1).line() > 0);
            }
        }
        assertEquals(0, Programs.number(output, "dropped.heap_ring_full"), output::toString);
    }

    /** Until Java 24 the VM's sampler loses up to a tenth of large objects among small ones. */
    @ParameterizedTest
    @CsvSource({"G1", "Serial"})
    void eachSiteHasItsBytesInAnyOrderOfSizes(String collector) throws Exception {
        List<String> output = Programs.run(AllocatesInOrder.class, List.of(Programs.collector(collector)), profiles.toString(),
                "500");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "allocs");
        for (String name : AllocatesInOrder.sites()) {
            String method = AllocatesInOrder.class.getName() + "." + name.substring(name.indexOf('.') + 1);
            String order = name.substring(0, name.indexOf('.'));
            double estimate = samples.stream()
                    .filter(sample -> sample.has(method) && order.equals(sample.labels().get("order")))
                    .mapToLong(ProfileFile.Sample::bytes).sum();
            double truth = Programs.number(output, name + "_bytes");
            double deviations = (estimate - truth) / Programs.number(output, name + "_deviation");
            double lost = Runtime.version().feature() < 25 ? 0.1 * truth : 0;
            double least = truth - lost - 6 * Programs.number(output, name + "_deviation");
            assertTrue(estimate > least && deviations < 6, () -> name + ": " + estimate + " of " + truth + ", " + deviations
                    + " standard deviations: " + output);
        }
    }

    @ParameterizedTest
    @CsvSource({"G1", "Serial", "Z"})
    void theProfileOfObjectsInUseHasThoseThatWereKeptAndNotThoseThatWereCollected(String collector) throws Exception {
        List<String> output = Programs.run(Retains.class, List.of(Programs.collector(collector)), profiles.toString());
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "heap");
        String program = Retains.class.getName();
        double truth = Programs.number(output, "bytes");
        long kept = samples.stream().filter(sample -> sample.has(program + ".kept")).mapToLong(ProfileFile.Sample::bytes).sum();
        long dropped =
                samples.stream().filter(sample -> sample.has(program + ".dropped")).mapToLong(ProfileFile.Sample::bytes).sum();
        // About 1000 samples: six standard deviations.
        assertTrue(Math.abs(kept / truth - 1) < 0.19, () -> kept + " of " + truth + " bytes: " + output);
        assertTrue(dropped < 0.01 * truth, () -> dropped + " bytes were collected");
        assertTrue(samples.stream().allMatch(sample -> sample.labels().containsKey("age")), "objects in use have an age");
        assertTrue(Programs.number(output, "references") > 500, output::toString);
        assertEquals(0, Programs.number(output, "references_after"), output::toString);
    }

    private void eachSampleHasTheLabelOfItsMethod(String threads) throws Exception {
        List<String> output = Programs.run(AllocatesLabeled.class, List.of(), profiles.toString(), threads);
        List<String> methods =
                Stream.of("zero", "one", "two").map(name -> AllocatesLabeled.class.getName() + "." + name).toList();
        long labeled = 0;
        long all = 0;
        for (ProfileFile.Sample sample : ProfileFile.readAll(profiles, "allocs")) {
            for (int site = 0; site < methods.size(); site++) {
                if (sample.has(methods.get(site))) {
                    String label = sample.labels().get("site");
                    assertTrue(label == null || label.equals(String.valueOf(site)), () -> "wrong label " + sample);
                    all += sample.bytes();
                    labeled += label == null ? 0 : sample.bytes();
                }
            }
        }
        // On a busy machine the ring may be full at times.
        assertTrue(all > 0.2 * Programs.number(output, "bytes"), all + " of " + output);
        assertTrue(labeled >= 0.995 * all, labeled + " of " + all + " bytes have a label");
    }

    @Test
    void eachSampleOfAPlatformThreadHasTheLabelOfItsMethod() throws Exception {
        eachSampleHasTheLabelOfItsMethod("platform");
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void eachSampleOfAVirtualThreadHasTheLabelOfItsMethod() throws Exception {
        eachSampleHasTheLabelOfItsMethod("virtual");
    }

    @ParameterizedTest
    @CsvSource({"G1,auto", "Serial,auto", "Z,auto", "G1,vm"})
    void theProgramIsUnaffectedWhileTheProfileIsTurnedOnAndOff(String collector, String walk) throws Exception {
        List<String> output = Programs.run(AllocatesRestarted.class, List.of(Programs.collector(collector), "-Xcheck:jni"),
                profiles.toString(), walk);
        assertEquals(0, Programs.number(output, "wrong"), output::toString);
        assertTrue(Programs.number(output, "events") > 1000, output::toString);
        assertFalse(output.stream().anyMatch(line -> line.contains("WARNING in native method")), output::toString);
    }
}
