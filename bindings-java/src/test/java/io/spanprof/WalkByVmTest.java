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

/** Profiles whose stacks the VM walks, as it does where our own walk cannot be trusted. */
class WalkByVmTest {
    private static final String SHARES = "io.spanprof.programs.Shares.";
    private static final String WAITS = "io.spanprof.programs.Waits.";

    @TempDir
    Path profiles;

    private static void isDegraded(List<String> said) {
        assertTrue(said.contains("runtime.java.stack_walk vm"), said::toString);
        assertTrue(said.contains("runtime.java.degraded vm_stack_walk"), said::toString);
    }

    @Test
    void sharesLinesAndLabelsAreTrueAllTheSame() throws Exception {
        List<String> said = Programs.run(Shares.class, List.of(), profiles.toString(), "250", "20", "vm");
        isDegraded(said);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        List<String> works = List.of("roots", "table", "text");
        long all = works.stream().mapToLong(work -> Programs.number(said, work)).sum();
        long seen = ProfileFile.sum(samples, sample -> works.stream().anyMatch(work -> sample.has(SHARES + work)));
        // The VM gives up on some stacks, and what reads the clock is not the work: most of the time is there all the same.
        assertTrue(seen >= all * 0.6, () -> seen + " of " + all + " ns: " + said);
        for (String work : works) {
            double truth = (double) Programs.number(said, work) / all;
            long part = ProfileFile.sum(samples, sample -> sample.has(SHARES + work));
            long count = samples.stream().filter(sample -> sample.has(SHARES + work)).mapToLong(ProfileFile.Sample::count).sum();
            // Five standard errors of as many samples as there were; stacks given up on are not spread evenly.
            double bound = 5 * Math.sqrt(truth * (1 - truth) / Math.max(1, count / truth)) + 0.03;
            assertEquals(truth, (double) part / seen, bound, work + ": " + said);
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
    void unloadedClassesNullChecksAndOverflowsStayTheVmsOwnBusiness() throws Exception {
        List<String> said = Programs.run(Hazards.class, List.of("-Xss512k"), profiles.toString(), "2500", "vm");
        isDegraded(said);
        for (String hazard : List.of("nulls", "overflows", "classes", "stopped")) {
            assertTrue(Programs.number(said, hazard) > 0, said::toString);
        }
    }

    @Test
    void theWallClockSeesThreadsThatWaitAndThreadsThatWork() throws Exception {
        List<String> said = Programs.run(Waits.class, List.of(), profiles.toString(), "1500", "vm");
        isDegraded(said);
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "wall");
        for (String work : List.of("sleeps", "reads", "works")) {
            assertTrue(ProfileFile.sum(samples, sample -> sample.has(WAITS + work)) > 0, work + ": " + said);
        }
    }
}
