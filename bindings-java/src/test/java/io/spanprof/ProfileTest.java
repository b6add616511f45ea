package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Barriers;
import io.spanprof.programs.Checksums;
import io.spanprof.programs.Deoptimized;
import io.spanprof.programs.Hazards;
import io.spanprof.programs.Inlined;
import io.spanprof.programs.Idles;
import io.spanprof.programs.Interpreted;
import io.spanprof.programs.Renamed;
import io.spanprof.programs.Requests;
import io.spanprof.programs.Shares;
import io.spanprof.programs.SourceMapped;
import io.spanprof.programs.Waits;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;

/** Profiles of real programs, compared with the programs' own measurements. */
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
    void sharesMatchTheProgramsOwnClock() throws Exception {
        List<String> output = Programs.run(Shares.class, List.of(), profiles.toString(), "250", "30");
        assertEquals(1, Programs.number(output, "stopped"));
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        long all = 0;
        for (String work : List.of("roots", "table", "text")) {
            all += Programs.number(output, work);
        }
        for (String work : List.of("roots", "table", "text")) {
            double truth = (double) Programs.number(output, work) / all;
            long seen = ProfileFile.sum(samples, sample -> sample.has(SHARES + work));
            // Five standard errors for this number of samples.
            long count = samples.stream().filter(sample -> sample.has(SHARES + work)).mapToLong(ProfileFile.Sample::count).sum();
            double bound = 5 * Math.sqrt(truth * (1 - truth) / Math.max(1, count / truth)) + 0.005;
            assertEquals(truth, (double) seen / all, bound, work + ": " + output);
        }
    }

    @Test
    void anInlinedMethodHasItsOwnFrameWithItsLine() throws Exception {
        Programs.run(Shares.class, List.of(), profiles.toString(), "250", "15");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        assertTrue(ProfileFile.sum(samples, sample -> sample.has(SHARES + "inlined")) > 0, "no inlined frame");
        List<ProfileFile.Frame> ours = samples.stream().flatMap(sample -> sample.frames().stream())
                .filter(frame -> frame.function().startsWith(SHARES)).toList();
        assertTrue(ours.stream().allMatch(frame -> frame.file().equals("Shares.java")), ours::toString);
        // The compilers' slow paths follow the code of all lines and have no line.
        long withoutLine = ProfileFile.sum(samples, sample -> sample.frames().stream()
                .anyMatch(frame -> frame.function().startsWith(SHARES) && frame.line() == 0));
        long all = ProfileFile.sum(samples, sample -> true);
        assertTrue(withoutLine <= all / 100, () -> withoutLine + " of " + all + " ns have a frame without line");
    }

    @Test
    void anInlineFunctionOfKotlinHasItsFileAndLineAboveTheLineThatCallsIt() throws Exception {
        Programs.run(SourceMapped.class, List.of(), profiles.toString());
        List<ProfileFile.Frame> leaves = ProfileFile.readAll(profiles).stream()
                .filter(sample -> sample.has("shop.InlineKt.[inline]")).flatMap(sample -> sample.frames().stream().limit(2)).toList();
        assertTrue(leaves.stream().anyMatch(frame -> frame.file().equals("Inline.kt") && frame.line() > 7), leaves::toString);
        String method = SourceMapped.class.getName() + "$Mapped.run";
        assertTrue(leaves.contains(new ProfileFile.Frame(method, "SourceMappedKt.kt", 5)), leaves::toString);
    }

    @Test
    void aStubBelowAnIntrinsicHasItsCompiledCallers() throws Exception {
        Programs.run(Checksums.class, List.of("-XX:TieredStopAtLevel=1"), profiles.toString());
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Predicate<ProfileFile.Sample> isStub = sample -> sample.frames().get(0).function().contains("updateBytesCRC32C");
        String checksum = Checksums.class.getName() + ".checksum";
        long all = ProfileFile.sum(samples, isStub);
        long complete = ProfileFile.sum(samples, isStub.and(sample -> sample.has(checksum)));
        assertTrue(all > 0 && complete >= all * 99 / 100, complete + " of " + all);
    }

    @Test
    void stacksAreCompleteWhileTheCollectorMovesObjects() throws Exception {
        for (String collector : List.of("G1GC", "ZGC")) {
            if (collector.equals("ZGC") && Programs.VERSION < 15) {
                continue;
            }
            Path folder = profiles.resolve(collector);
            List<String> output = Programs.run(Barriers.class, List.of("-XX:+Use" + collector), folder.toString(), "2000");
            List<ProfileFile.Sample> samples = ProfileFile.readAll(folder);
            Predicate<ProfileFile.Sample> work = sample -> sample.has(BARRIERS + "inner") || sample.has(BARRIERS + "middle");
            long all = ProfileFile.sum(samples, work);
            assertTrue(all > 0, output::toString);
            // Independent of the leaf: each GC barrier was called by the thread's own work.
            long whole = ProfileFile.sum(samples, sample -> work.test(sample) && sample.has(BARRIERS + "outer")
                    && sample.frames().get(sample.frames().size() - 1).function().equals("java.lang.Thread.run"));
            long broken = ProfileFile.sum(samples, sample -> sample.has("[invalid_frame]"));
            assertTrue(whole >= all * 0.995 && broken <= all * 0.005,
                    () -> collector + ": of " + all + " ns " + whole + " whole, " + broken + " broken: " + output);
        }
    }

    @Test
    void stacksAreCompleteWhileADebuggersAgentDeoptimizesMethods() throws Exception {
        List<String> agent = List.of("-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:0");
        List<String> output = Programs.run(Deoptimized.class, agent, profiles.toString(), "4000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Predicate<ProfileFile.Sample> work = sample -> sample.has(DEOPTIMIZED + "outer") || sample.has("[invalid_frame]");
        long all = ProfileFile.sum(samples, work);
        long whole = ProfileFile.sum(samples, work.and(sample -> sample.has(DEOPTIMIZED + "main") && !sample.has("[invalid_frame]")));
        // While the VM builds interpreter frames step by step, the stack cannot be walked.
        assertTrue(all > 0 && whole >= all * 0.98, () -> "of " + all + " ns " + whole + " whole: " + output);
    }

    @Test
    void stacksAreCompleteInInterpretedCallsFaultsAndExceptions() throws Exception {
        List<String> exclude = List.of("-XX:CompileCommand=quiet", "-XX:CompileCommand=exclude," + Interpreted.METHOD);
        List<String> output = Programs.run(Interpreted.class, exclude, profiles.toString(), "3000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Predicate<ProfileFile.Sample> work = sample -> sample.has(INTERPRETED + "outer") || sample.has("[invalid_frame]");
        long all = ProfileFile.sum(samples, work);
        long whole = ProfileFile.sum(samples, work.and(sample -> sample.has(INTERPRETED + "main") && !sample.has("[invalid_frame]")));
        assertTrue(all > 0 && whole >= all * 0.995, () -> "of " + all + " ns " + whole + " whole: " + output);
        // The loop itself takes almost no time.
        long within = ProfileFile.sum(samples, work.and(sample -> sample.has(INTERPRETED + "middle")));
        assertTrue(within >= all * 0.95, () -> "of " + all + " ns " + within + " in the loop's callees");
        // The profiler's fault handler, which most VMs' handlers let no sample interrupt, is called by the method that faulted.
        Predicate<ProfileFile.Sample> fault = sample -> sample.leaf().equals("spanprof") && sample.has(INTERPRETED + "outer");
        long faults = ProfileFile.sum(samples, fault);
        long byMethod = ProfileFile.sum(samples, fault.and(sample -> sample.has(INTERPRETED + "inner")));
        assertTrue(byMethod >= faults * 0.9,
                () -> "of " + faults + " ns in the fault handler " + byMethod + " by the method");
    }

    @Test
    void codeOfAdjacentInlinedMethodsIsAttributedToTheRightMethod() throws Exception {
        Programs.run(Inlined.class, List.of(), profiles.toString(), "3000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        Predicate<ProfileFile.Sample> work = sample -> Inlined.KINDS.stream().anyMatch(kind -> sample.has(INLINED + kind));
        long all = ProfileFile.sum(samples, work);
        long wrong = ProfileFile.sum(samples, work.and(sample -> !sample.has(INLINED + sample.labels().get("kind"))));
        assertTrue(all > 0, "no sample");
        // A hundred times the measured remainder, or one sample, which represents at most a kernel tick and its own handler; the single
        // cases are unit tests of the runtime.
        assertTrue(wrong <= Math.max(all / 1000, 5_000_000), () -> wrong + " of " + all + " ns are attributed to an adjacent method");
    }

    @Test
    void aSampleHasTheWholeNameThatItsThreadHadWhenItWasTaken() throws Exception {
        Programs.run(Renamed.class, List.of(), profiles.toString());
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        List<String> tasks = List.of("reads", "writes", "idles");
        for (int index = 0; index < tasks.size(); index++) {
            String task = Renamed.class.getName() + "." + tasks.get(index);
            assertLabels(samples, "thread.name", Renamed.NAMES[index], sample -> sample.has(task));
        }
    }

    @Test
    void aScopesLabelsAreOnTheSamplesOfItsWorkOnly() throws Exception {
        Programs.run(Shares.class, List.of(), profiles.toString(), "250", "15");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        assertLabels(samples, "endpoint", "/table", sample -> sample.has(SHARES + "table"));
        assertLabels(samples, "endpoint", "/text", sample -> sample.has(SHARES + "text"));
        assertLabels(samples, "round", "odd", sample -> sample.has(SHARES + "table"));
        long wrong = ProfileFile.sum(samples,
                sample -> sample.has(SHARES + "roots") && sample.labels().containsKey("endpoint"));
        assertEquals(0, wrong, "labels on work outside of every scope");
    }

    @Test
    void labelsFollowTheTasksOfAThreadPool() throws Exception {
        Programs.run(Requests.class, List.of(), profiles.toString(), "platform", "40");
        assertRedAndBlueLabels(ProfileFile.readAll(profiles));
    }

    @Test
    void wrappedWorkHasTheLabelsOfTheScopeThatItWasWrappedIn() throws Exception {
        Programs.run(Requests.class, List.of(), profiles.toString(), "platform", "40", "wrapped");
        assertRedAndBlueLabels(ProfileFile.readAll(profiles));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void labelsFollowVirtualThreadsFromCarrierToCarrier() throws Exception {
        List<String> output = Programs.run(Requests.class, List.of(), profiles.toString(), "virtual", "40");
        assertTrue(Programs.number(output, "runtime.java.mounts_followed") > 100, output::toString);
        assertEquals(0, Programs.number(output, "runtime.java.virtual_threads_labelled"));
        assertRedAndBlueLabels(ProfileFile.readAll(profiles));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void inheritedLabelsFollowVirtualThreadsFromCarrierToCarrier() throws Exception {
        List<String> output = Programs.run(Requests.class, List.of(), profiles.toString(), "virtual", "40", "inherited");
        assertEquals(0, Programs.number(output, "runtime.java.virtual_threads_labelled"));
        assertRedAndBlueLabels(ProfileFile.readAll(profiles));
    }

    @Test
    void nullChecksStackOverflowsAndUnloadedClassesAreStillHandledByTheVm() throws Exception {
        List<String> output = Programs.run(Hazards.class, List.of("-Xss512k"), profiles.toString(), "2500");
        for (String hazard : List.of("nulls", "overflows", "classes", "stopped")) {
            assertTrue(Programs.number(output, hazard) > 0, output::toString);
        }
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        long all = ProfileFile.sum(samples, sample -> true);
        long broken = ProfileFile.sum(samples, sample -> sample.has("[invalid_frame]"));
        assertTrue(all > 0 && broken <= all / 100, () -> "of " + all + " ns " + broken + " broken: " + output);
    }

    @Test
    void wallTimeCoversEveryThreadWaitingOrWorking() throws Exception {
        List<String> output = Programs.run(Waits.class, List.of(), profiles.toString(), "2000");
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles, "wall");
        long sleeps = ProfileFile.sum(samples, sample -> sample.has(WAITS + "sleeps"));
        long reads = ProfileFile.sum(samples, sample -> sample.has(WAITS + "reads"));
        long works = ProfileFile.sum(samples, sample -> sample.has(WAITS + "works"));
        assertTrue(sleeps > 0 && reads > 0 && works > 0, output::toString);
        // Eight threads sleep, six read, two work, all for the same time.
        assertEquals(6.0 / 8, (double) reads / sleeps, 0.01, output::toString);
        assertEquals(2.0 / 8, (double) works / sleeps, 0.05, output::toString);
        assertLabels(samples, "job", "works", sample -> sample.has(WAITS + "works"));
        assertEquals(0, ProfileFile.sum(samples, sample -> !sample.has(WAITS + "works") && sample.labels().containsKey("job")));

        List<ProfileFile.Sample> offCpu = ProfileFile.readAll(profiles, "off_cpu");
        for (String[] wait : new String[][] {{"sleeps", "[lock]"}, {"reads", "[I/O]"}}) {
            long wallNanos = wait[0].equals("sleeps") ? sleeps : reads;
            long offNanos = ProfileFile.sum(offCpu, sample -> sample.has(WAITS + wait[0]));
            long withReason = ProfileFile.sum(offCpu, sample -> sample.has(WAITS + wait[0]) && sample.has(wait[1]));
            assertEquals(wallNanos, offNanos, wallNanos / 50.0, wait[0]);
            assertTrue(withReason > 0.9 * offNanos, wait[0]);
        }
        long scheduledOut = ProfileFile.sum(offCpu, sample -> sample.has(WAITS + "works"));
        assertTrue(scheduledOut < works, () -> scheduledOut + " of " + works + " ns");
        List<ProfileFile.Sample> threads = ProfileFile.readAll(profiles, "threads");
        assertEquals(8, ProfileFile.sum(threads, sample -> sample.has(WAITS + "sleeps")));
        assertEquals(6, ProfileFile.sum(threads, sample -> sample.has(WAITS + "reads")));
    }

    @Test
    void theWallClockLetsAnIdleProcessSleep() throws Exception {
        List<String> output = Programs.run(Idles.class, List.of(), profiles.toString(), "3000");
        long wakeups = Programs.number(output, "wakeups");
        long millis = Programs.number(output, "millis");
        assertTrue(wakeups > 0 && wakeups * 1000 <= 20 * millis, output::toString);
        long waits = ProfileFile.sum(ProfileFile.readAll(profiles, "wall"), sample -> sample.has(Idles.class.getName() + ".waits"));
        assertEquals(millis * 1e6, waits, 0.1 * millis * 1e6, output::toString);
    }

    private static void assertRedAndBlueLabels(List<ProfileFile.Sample> samples) {
        assertLabels(samples, "kind", "red", sample -> sample.has(REQUESTS + "red"));
        assertLabels(samples, "kind", "blue", sample -> sample.has(REQUESTS + "blue"));
    }

    /** Asserts that no sample has another value, and at most 0.5 % have none. */
    private static void assertLabels(
            List<ProfileFile.Sample> samples, String key, String value, Predicate<ProfileFile.Sample> work) {
        long all = ProfileFile.sum(samples, work);
        long right = ProfileFile.sum(samples, work.and(sample -> value.equals(sample.labels().get(key))));
        long none = ProfileFile.sum(samples, work.and(sample -> !sample.labels().containsKey(key)));
        assertTrue(all >= 50_000_000, () -> "only " + all + " ns of " + value);
        assertEquals(all, right + none, value + " has another request's label");
        assertTrue(none <= all / 200, () -> none + " of " + all + " ns of " + value + " have no label");
    }
}
