package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Hazards;
import io.spanprof.programs.Shares;
import io.spanprof.programs.Waits;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Profiles with stacks from {@code AsyncGetCallTrace}, the fallback of the own stack walker. */
class AsyncGetCallTraceTest {
    private static final String SHARES = "io.spanprof.programs.Shares.";
    private static final String WAITS = "io.spanprof.programs.Waits.";

    @TempDir
    Path profiles;

    private static void assertDegraded(List<String> output) {
        assertTrue(output.contains("runtime.java.stack_walk vm"), output::toString);
        assertTrue(output.contains("runtime.java.degraded vm_stack_walk"), output::toString);
    }

    @Test
    void sharesLinesAndLabelsAreCorrect() throws Exception {
        List<String> output = Programs.run(Shares.class, List.of(), profiles.toString(), "250", "20", "vm");
        assertDegraded(output);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        List<String> works = List.of("roots", "table", "text");
        long all = works.stream().mapToLong(work -> Programs.number(output, work)).sum();
        long seen = ProfileFile.sum(samples, sample -> works.stream().anyMatch(work -> sample.has(SHARES + work)));
        // The VM fails on some stacks, and reading the clock is not part of the work: most of the time is still attributed.
        assertTrue(seen >= all * 0.6, () -> seen + " of " + all + " ns: " + output);
        for (String work : works) {
            double truth = (double) Programs.number(output, work) / all;
            long part = ProfileFile.sum(samples, sample -> sample.has(SHARES + work));
            long count = samples.stream().filter(sample -> sample.has(SHARES + work)).mapToLong(ProfileFile.Sample::count).sum();
            // Five standard errors for this number of samples; failed stacks are not evenly distributed.
            double bound = 5 * Math.sqrt(truth * (1 - truth) / Math.max(1, count / truth)) + 0.03;
            assertEquals(truth, (double) part / seen, bound, work + ": " + output);
        }
        List<ProfileFile.Frame> ours = samples.stream().flatMap(sample -> sample.frames().stream())
                .filter(frame -> frame.function().startsWith(SHARES)).toList();
        assertTrue(ours.stream().allMatch(frame -> frame.file().equals("Shares.java")), ours::toString);
        assertTrue(ours.stream().anyMatch(frame -> frame.line() > 0), ours::toString);
        long labelled = ProfileFile.sum(samples,
                sample -> sample.has(SHARES + "table") && "/table".equals(sample.labels().get("endpoint")));
        long table = ProfileFile.sum(samples, sample -> sample.has(SHARES + "table"));
        assertTrue(table > 0 && labelled >= table * 0.995, () -> labelled + " of " + table);
    }

    @Test
    void unloadedClassesNullChecksAndStackOverflowsAreStillHandledByTheVm() throws Exception {
        List<String> output = Programs.run(Hazards.class, List.of("-Xss512k"), profiles.toString(), "2500", "vm");
        assertDegraded(output);
        for (String hazard : List.of("nulls", "overflows", "classes", "stopped")) {
            assertTrue(Programs.number(output, hazard) > 0, output::toString);
        }
    }

    @Test
    void theWallClockSamplesWaitingAndWorkingThreads() throws Exception {
        List<String> output = Programs.run(Waits.class, List.of(), profiles.toString(), "1500", "vm");
        assertDegraded(output);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "wall");
        for (String work : List.of("sleeps", "reads", "works")) {
            assertTrue(ProfileFile.sum(samples, sample -> sample.has(WAITS + work)) > 0, work + ": " + output);
        }
    }
}
