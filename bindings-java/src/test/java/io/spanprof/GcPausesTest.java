package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Collects;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Pauses for garbage collection, compared with the VM's own log of them. */
class GcPausesTest {
    private static final Pattern SAFEPOINT = Pattern.compile("\\[(\\d+)ns\\] *Safepoint \"(\\w+)\".*At safepoint: +(\\d+) ns.*");
    /** In the log of Java 8, which has the time since the start of the VM in seconds. */
    private static final Pattern PAUSE_OF_JAVA_8 = Pattern.compile("([0-9.]+): \\[(?!GC concurrent).*[ ,] ?([0-9.]+) secs\\] ?");
    private static final Pattern PAUSE = Pattern.compile("\\[(\\d+)ns\\] *GC\\(\\d+\\) (?:\\w: )?Pause .* ([0-9.]+)ms");

    @TempDir
    Path directory;

    /** Output of the program; its profiles are in {@code profiles}, the VM's log in {@code vm.log}. */
    private List<String> run(String collector, String end, String... options) throws Exception {
        Files.createDirectory(directory.resolve("profiles"));
        List<String> all = new ArrayList<>(List.of(Programs.collector(collector), "-Xmx128m"));
        Path log = directory.resolve("vm.log");
        all.addAll(Programs.VERSION == 8 ? List.of("-Xloggc:" + log) : List.of("-Xlog:gc*,safepoint:file=" + log + ":timenanos"));
        all.addAll(List.of(options));
        return Programs.run(Collects.class, all, directory.resolve("profiles").toString(), end);
    }

    private List<ProfileFile.Sample> samples() throws Exception {
        return ProfileFile.readAll(directory.resolve("profiles"), "gc");
    }

    /** The matches of the VM's log lines between the start and the end of the program's report. */
    private List<Matcher> logged(Pattern pattern, List<String> output) throws Exception {
        long from = Programs.number(output, "started_ns");
        long to = Programs.number(output, "ended_ns");
        return Files.readAllLines(directory.resolve("vm.log")).stream().map(pattern::matcher).filter(Matcher::matches)
                .filter(line -> Long.parseLong(line.group(1)) > from && Long.parseLong(line.group(1)) < to).toList();
    }

    @ParameterizedTest
    @CsvSource({"G1,G1 young collection", "Serial,Serial young collection", "Parallel,Parallel young collection", "Z,''"})
    void pausesHaveTheirTotalWithCollectorAndCause(String collector, String young) throws Exception {
        List<String> output = run(collector, "stop");
        List<ProfileFile.Sample> samples = samples();
        long total = ProfileFile.sum(samples, sample -> true);
        assertEquals(Programs.number(output, "pause_ns"), total, "every pause is in the profile");
        if (Programs.VERSION == 8) {
            assertLogOfJava8(total, output);
            return;
        }
        double safepoints = logged(SAFEPOINT, output).stream().filter(line -> !line.group(2).equals("ICBufferFull"))
                .mapToDouble(line -> Double.parseDouble(line.group(3))).sum();
        List<Matcher> pauses = logged(PAUSE, output);
        double logged = pauses.stream().mapToDouble(line -> Double.parseDouble(line.group(2)) * 1e6).sum();
        // Java 11 logs safepoints in another form.
        assertTrue(Programs.VERSION < 17 || total <= safepoints, () -> total + " in safepoints of " + safepoints);
        // The VM's times of pauses contain those of the JVMTI callbacks, which matter for the short pauses of ZGC.
        double least = collector.equals("Z") ? 0.05 : 0.95;
        assertTrue(total >= least * logged, () -> total + " of " + logged + " ns in the VM's log: " + output);
        for (ProfileFile.Sample sample : samples) {
            assertEquals(3, sample.frames().size(), sample::toString);
            assertEquals("[GC]", sample.frames().get(2).function());
            assertNull(sample.labels().get("endpoint"), "no thread of the program caused the pause");
        }
        assertTrue(samples.stream().anyMatch(sample -> sample.leaf().equals("[System.gc()]")), samples::toString);
        assertTrue(young.isEmpty() || Programs.VERSION < 17 || samples.stream().anyMatch(sample -> sample.has("[" + young + "]")), samples::toString);
    }

    /** Java 8 logs no safepoints, and rounds times to a millisecond. */
    private void assertLogOfJava8(long total, List<String> output) throws Exception {
        double from = Programs.number(output, "started_ms") / 1e3 - 0.002;
        double to = Programs.number(output, "ended_ms") / 1e3 + 0.002;
        double logged = Files.readAllLines(directory.resolve("vm.log")).stream().map(PAUSE_OF_JAVA_8::matcher)
                .filter(Matcher::matches).filter(line -> Double.parseDouble(line.group(1)) > from)
                .filter(line -> Double.parseDouble(line.group(1)) < to).mapToDouble(line -> Double.parseDouble(line.group(2)) * 1e9).sum();
        assertTrue(total >= 0.9 * logged && total <= 1.1 * logged, () -> total + " of " + logged + " ns in the VM's log: " + output);
    }

    @Test
    void aVmWithoutPerformanceDataHasPausesWithoutCause() throws Exception {
        List<String> output = run("G1", "stop", "-XX:-UsePerfData");
        List<ProfileFile.Sample> samples = samples();
        assertEquals(Programs.number(output, "pause_ns"), ProfileFile.sum(samples, sample -> true));
        assertEquals(List.of("[GC]"), samples.stream().map(ProfileFile.Sample::leaf).distinct().toList());
    }

    @Test
    void pausesAreReportedOnlyWhileTheKeyIsOn() throws Exception {
        List<String> output = run("Serial", "update");
        long pauses = Programs.number(output, "pauses");
        assertTrue(pauses > 0, output::toString);
        assertEquals(pauses, Programs.number(output, "pauses_afterwards"));
        assertTrue(Programs.number(output, "pauses_again") > pauses, output::toString);
    }
}
