package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Leaks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The objects in use that a killed process leaves behind. */
class HeapPeakTest {
    /** Resident memory at which the program is killed, bytes. */
    private static final long LIMIT = 300_000_000;
    private static final int KILLS = Integer.getInteger("heapPeakKills", 2);
    private static final int KILLED = 128 + 9;
    private static final int PAGE_BYTES = 4096;
    private static final int RECORD_BYTES = 72;

    @TempDir
    Path directory;

    private static long residentBytes(long process) throws Exception {
        // The number in `statm` is in pages, whose size Java has no method for.
        String line = Files.readAllLines(Path.of("/proc/" + process + "/status")).stream()
                .filter(text -> text.startsWith("VmRSS:")).findFirst().orElse("VmRSS: 0 kB");
        return 1024 * Long.parseLong(line.replaceAll("\\D", ""));
    }

    /** Kills the program at the limit and checks what it left behind. Returns the age of the record in microseconds. */
    private static long killAtLimit(Path directory) throws Exception {
        Process process = Programs.start(Leaks.class, List.of("-Xmx512m"), directory.toString());
        long resident = 0;
        while (process.isAlive() && resident < LIMIT) {
            Thread.sleep(10);
            resident = residentBytes(process.pid());
        }
        process.destroyForcibly();
        Instant killed = Instant.now();
        assertEquals(KILLED, process.waitFor());
        Path file;
        try (Stream<Path> files = Files.list(directory)) {
            file = files.filter(path -> path.toString().endsWith(".peak")).findFirst().orElseThrow();
        }
        // The format is in core/profile/src/heap_peak.rs.
        ByteBuffer content = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
        int second = PAGE_BYTES + (int) content.getLong(32);
        int newer = content.getLong(PAGE_BYTES) > content.getLong(second) ? PAGE_BYTES : second;
        assertTrue(content.getLong(newer) > 0, "no record");
        assertEquals(process.pid(), content.getInt(12));
        byte[] profile = new byte[(int) content.getLong(newer + 56)];
        content.get(newer + RECORD_BYTES, profile);
        long remembered = ProfileFile.parse(profile).stream()
                .filter(sample -> sample.has(Leaks.class.getName() + ".remember")).mapToLong(ProfileFile.Sample::bytes).sum();
        long live = content.getLong(newer + 16);
        assertTrue(remembered > live / 2, () -> remembered + " of " + live + " bytes");
        assertTrue(live < 1.2 * resident, live + " bytes in use, " + resident + " resident");
        Instant written = Instant.EPOCH.plusNanos(content.getLong(newer + 8));
        return ChronoUnit.MICROS.between(written, killed);
    }

    @Test
    void aProcessKilledAtAMemoryLimitLeavesTheLeakingMethodFirst() throws Exception {
        List<Long> ages = new ArrayList<>();
        for (int kill = 0; kill < KILLS; kill++) {
            ages.add(killAtLimit(directory.resolve("kill-" + kill)));
        }
        System.out.println(ages.size() + " recovered, at most " + Collections.max(ages) / 1000 + " ms old");
        // A second at most on an idle machine; a busy one may delay the drain thread.
        assertTrue(ages.stream().allMatch(age -> age > -100_000 && age < 20_000_000), ages::toString);
    }
}
