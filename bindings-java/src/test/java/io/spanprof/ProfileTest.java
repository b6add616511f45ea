package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Barriers;
import io.spanprof.programs.Deoptimized;
import io.spanprof.programs.Hazards;
import io.spanprof.programs.Inlined;
import io.spanprof.programs.Idles;
import io.spanprof.programs.Interpreted;
import io.spanprof.programs.Requests;
import io.spanprof.programs.Shares;
import io.spanprof.programs.Waits;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;

/** Profiles of real programs, told true by what the programs know of themselves. */
class ProfileTest {
    private static final String SHARES = "io.spanprof.programs.Shares.";
    private static final String WAITS = "io.spanprof.programs.Waits.";
    private static final String BARRIERS = "io.spanprof.programs.Barriers.";
    private static final String INTERPRETED = "io.spanprof.programs.Interpreted.";
    private static final String DEOPTIMIZED = Deoptimized.class.getName() + ".";
    private static final String INLINED = "io.spanprof.programs.Inlined.";
    private static final String REQUESTS = "io.spanprof.programs.Requests.";

    @TempDir
    Path profiles;

    @Test
    void sharesAndTotalsAreThoseOfTheProgramsOwnClock() throws Exception {
        List<String> said = Programs.run(Shares.class, List.of(), profiles.toString(), "250", "30");
        assertEquals(1, Programs.number(said, "stopped"));
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        long all = 0;
        for (String work : List.of("roots", "table", "text")) {
            all += Programs.number(said, work);
        }
        for (String work : List.of("roots", "table", "text")) {
            double truth = (double) Programs.number(said, work) / all;
            long seen = ProfileFile.sum(samples, sample -> sample.has(SHARES + work));
            // Five standard errors of as many samples as there were.
            long count = samples.stream().filter(sample -> sample.has(SHARES + work)).mapToLong(ProfileFile.Sample::count).sum();
            double bound = 5 * Math.sqrt(truth * (1 - truth) / Math.max(1, count / truth)) + 0.005;
            assertEquals(truth, (double) seen / all, bound, work + ": " + said);
        }
    }

    @Test
    void aMethodInlinedIntoItsCallerHasItsOwnFrameWithItsLine() throws Exception {
        Programs.run(Shares.class, List.of(), profiles.toString(), "250", "15");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        assertTrue(ProfileFile.sum(samples, sample -> sample.has(SHARES + "inlined")) > 0, "no inlined frame");
        List<ProfileFile.Frame> ours = samples.stream().flatMap(sample -> sample.frames().stream())
                .filter(frame -> frame.function().startsWith(SHARES)).toList();
        assertTrue(ours.stream().allMatch(frame -> frame.file().equals("Shares.java")), ours::toString);
        // The compilers' slow paths lie behind the code of every line.
        long withoutLine = ProfileFile.sum(samples, sample -> sample.frames().stream()
                .anyMatch(frame -> frame.function().startsWith(SHARES) && frame.line() == 0));
        long all = ProfileFile.sum(samples, sample -> true);
        assertTrue(withoutLine <= all / 100, () -> withoutLine + " of " + all + " ns have a frame without line");
    }

    @Test
    void stacksAreWholeWhileTheCollectorMovesObjects() throws Exception {
        for (String collector : List.of("G1GC", "ZGC")) {
            Path folder = profiles.resolve(collector);
            List<String> said = Programs.run(Barriers.class, List.of("-XX:+Use" + collector), folder.toString(), "2000");
            List<ProfileFile.Sample> samples = ProfileFile.readAll(folder);
            Predicate<ProfileFile.Sample> work = sample -> sample.has(BARRIERS + "inner") || sample.has(BARRIERS + "middle");
            long all = ProfileFile.sum(samples, work);
            assertTrue(all > 0, said::toString);
            // Whatever the leaf is: who follows the references was called by the thread's own work.
            long whole = ProfileFile.sum(samples, sample -> work.test(sample) && sample.has(BARRIERS + "outer")
                    && sample.frames().get(sample.frames().size() - 1).function().equals("java.lang.Thread.run"));
            long broken = ProfileFile.sum(samples, sample -> sample.has("[invalid_frame]"));
            assertTrue(whole >= all * 0.995 && broken <= all * 0.005,
                    () -> collector + ": of " + all + " ns " + whole + " whole, " + broken + " broken: " + said);
        }
    }

    @Test
    void stacksAreWholeWhileADebuggersAgentHasMethodsDeoptimized() throws Exception {
        List<String> agent = List.of("-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:0");
        List<String> said = Programs.run(Deoptimized.class, agent, profiles.toString(), "4000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Predicate<ProfileFile.Sample> work = sample -> sample.has(DEOPTIMIZED + "outer") || sample.has("[invalid_frame]");
        long all = ProfileFile.sum(samples, work);
        long whole = ProfileFile.sum(samples, work.and(sample -> sample.has(DEOPTIMIZED + "main") && !sample.has("[invalid_frame]")));
        // While the VM itself builds their frames, one instruction after the other, nothing leads out of them.
        assertTrue(all > 0 && whole >= all * 0.98, () -> "of " + all + " ns " + whole + " whole: " + said);
    }

    @Test
    void stacksAreWholeWhereInterpretedCodeIsCalledFaultsAndThrows() throws Exception {
        List<String> exclude = List.of("-XX:CompileCommand=quiet", "-XX:CompileCommand=exclude," + Interpreted.METHOD);
        List<String> said = Programs.run(Interpreted.class, exclude, profiles.toString(), "3000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Predicate<ProfileFile.Sample> work = sample -> sample.has(INTERPRETED + "outer") || sample.has("[invalid_frame]");
        long all = ProfileFile.sum(samples, work);
        long whole = ProfileFile.sum(samples, work.and(sample -> sample.has(INTERPRETED + "main") && !sample.has("[invalid_frame]")));
        assertTrue(all > 0 && whole >= all * 0.995, () -> "of " + all + " ns " + whole + " whole: " + said);
        // Hardly anything is done by the loop itself.
        long within = ProfileFile.sum(samples, work.and(sample -> sample.has(INTERPRETED + "middle")));
        assertTrue(within >= all * 0.95, () -> "of " + all + " ns " + within + " in what the loop calls");
        // Our handler of faults was called by who made them.
        Predicate<ProfileFile.Sample> fault = sample -> sample.leaf().equals("spanprof") && sample.has(INTERPRETED + "outer");
        long faults = ProfileFile.sum(samples, fault);
        long theirs = ProfileFile.sum(samples, fault.and(sample -> sample.has(INTERPRETED + "inner")));
        assertTrue(faults > 0 && theirs >= faults * 0.9, () -> "of " + faults + " ns in our handler " + theirs + " by the method");
    }

    @Test
    void codeInlinedSideBySideIsNotMistakenForItsNeighbour() throws Exception {
        Programs.run(Inlined.class, List.of(), profiles.toString(), "3000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Predicate<ProfileFile.Sample> work = sample -> Inlined.KINDS.stream().anyMatch(kind -> sample.has(INLINED + kind));
        long all = ProfileFile.sum(samples, work);
        long wrong = ProfileFile.sum(samples, work.and(sample -> !sample.has(INLINED + sample.labels().get("kind"))));
        assertTrue(all > 0, "no sample");
        // A hundred times what is left; the places themselves are tested beside their code.
        assertTrue(wrong <= all / 1000, () -> wrong + " of " + all + " ns are a neighbour's");
    }

    @Test
    void labelsOfAScopeAreOnTheSamplesOfItsWorkAndOnNoOther() throws Exception {
        Programs.run(Shares.class, List.of(), profiles.toString(), "250", "15");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        rightLabels(samples, "endpoint", "/table", sample -> sample.has(SHARES + "table"));
        rightLabels(samples, "endpoint", "/text", sample -> sample.has(SHARES + "text"));
        rightLabels(samples, "round", "odd", sample -> sample.has(SHARES + "table"));
        long wrong = ProfileFile.sum(samples,
                sample -> sample.has(SHARES + "roots") && sample.labels().containsKey("endpoint"));
        assertEquals(0, wrong, "labels on work outside of every scope");
    }

    @Test
    void labelsFollowTheTasksOfAThreadPool() throws Exception {
        Programs.run(Requests.class, List.of(), profiles.toString(), "platform", "40");
        redAndBlue(ProfileFile.readAll(profiles));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void labelsFollowVirtualThreadsFromCarrierToCarrier() throws Exception {
        List<String> said = Programs.run(Requests.class, List.of(), profiles.toString(), "virtual", "40");
        assertTrue(Programs.number(said, "runtime.java.mounts_followed") > 100, said::toString);
        assertEquals(0, Programs.number(said, "runtime.java.virtual_threads_labelled"));
        redAndBlue(ProfileFile.readAll(profiles));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void labelsThatVirtualThreadsInheritFollowThemFromCarrierToCarrier() throws Exception {
        List<String> said = Programs.run(Requests.class, List.of(), profiles.toString(), "virtual", "40", "inherited");
        assertEquals(0, Programs.number(said, "runtime.java.virtual_threads_labelled"));
        redAndBlue(ProfileFile.readAll(profiles));
    }

    @Test
    void nullChecksOverflowsAndUnloadedClassesStayTheVmsOwnBusiness() throws Exception {
        List<String> said = Programs.run(Hazards.class, List.of("-Xss512k"), profiles.toString(), "2500");
        for (String hazard : List.of("nulls", "overflows", "classes", "stopped")) {
            assertTrue(Programs.number(said, hazard) > 0, said::toString);
        }
    }

    @Test
    void wallTimeIsThatOfEveryThreadWaitingOrWorking() throws Exception {
        List<String> said = Programs.run(Waits.class, List.of(), profiles.toString(), "2000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "wall");
        long sleeps = ProfileFile.sum(samples, sample -> sample.has(WAITS + "sleeps"));
        long reads = ProfileFile.sum(samples, sample -> sample.has(WAITS + "reads"));
        long works = ProfileFile.sum(samples, sample -> sample.has(WAITS + "works"));
        assertTrue(sleeps > 0 && reads > 0 && works > 0, said::toString);
        // Eight threads sleep, six read, two work, all for the same time.
        assertEquals(6.0 / 8, (double) reads / sleeps, 0.01, said::toString);
        assertEquals(2.0 / 8, (double) works / sleeps, 0.05, said::toString);
        rightLabels(samples, "job", "works", sample -> sample.has(WAITS + "works"));
        assertEquals(0, ProfileFile.sum(samples, sample -> !sample.has(WAITS + "works") && sample.labels().containsKey("job")));
    }

    @Test
    void theWallClockLetsAProcessSleepThatIdles() throws Exception {
        List<String> said = Programs.run(Idles.class, List.of(), profiles.toString(), "3000");
        long looks = Programs.number(said, "looks");
        long millis = Programs.number(said, "millis");
        assertTrue(looks > 0 && looks * 1000 <= 20 * millis, said::toString);
        long waits = ProfileFile.sum(ProfileFile.readAll(profiles, "wall"), sample -> sample.has(Idles.class.getName() + ".waits"));
        assertEquals(millis * 1e6, waits, 0.1 * millis * 1e6, said::toString);
    }

    private static void redAndBlue(List<ProfileFile.Sample> samples) {
        rightLabels(samples, "kind", "red", sample -> sample.has(REQUESTS + "red"));
        rightLabels(samples, "kind", "blue", sample -> sample.has(REQUESTS + "blue"));
    }

    /** Not one sample with another value, and hardly any without one. */
    private static void rightLabels(
            List<ProfileFile.Sample> samples, String key, String value, Predicate<ProfileFile.Sample> work) {
        long all = ProfileFile.sum(samples, work);
        long right = ProfileFile.sum(samples, work.and(sample -> value.equals(sample.labels().get(key))));
        long none = ProfileFile.sum(samples, work.and(sample -> !sample.labels().containsKey(key)));
        assertTrue(all >= 50_000_000, () -> "only " + all + " ns of " + value);
        assertEquals(all, right + none, value + " has another request's label");
        assertTrue(none <= all / 200, () -> none + " of " + all + " ns of " + value + " have no label");
    }
}
