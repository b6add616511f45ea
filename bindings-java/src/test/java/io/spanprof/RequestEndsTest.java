package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.FilteredRequests;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tail-based retention by the filters, against the durations inside and outside of them. */
class RequestEndsTest {
    private static final long LIMIT_NANOSECONDS = 50_000_000;

    @TempDir
    Path profiles;

    @ParameterizedTest
    @CsvSource({"1000, none", "200, inside", "200, outside"})
    void exactlyTheSlowAndTheFailedRequestsKeepTheirTimestamps(int count, String spans) throws Exception {
        List<String> output = Programs.run(FilteredRequests.class, List.of(), profiles.toString(), String.valueOf(count), spans);
        Set<Integer> required = new HashSet<>();
        Set<Integer> allowed = new HashSet<>();
        for (String line : output.stream().filter(line -> line.startsWith("request ")).toList()) {
            String[] words = line.split(" ");
            int number = Integer.parseInt(words[1]);
            boolean isFailed = number % 50 == 25;
            assertEquals(isFailed ? "503" : "200", words[4], line);
            // Every request that worked long has samples; one that only waited may have none.
            if (number % 25 == 0) {
                required.add(number);
            }
            if (isFailed || Long.parseLong(words[3]) >= LIMIT_NANOSECONDS) {
                allowed.add(number);
            }
        }
        Set<Integer> kept = new HashSet<>();
        Set<Integer> plain = new HashSet<>();
        for (ProfileFile.Sample sample : ProfileFile.readAll(profiles)) {
            String number = sample.labels().get("request");
            if (number != null) {
                (sample.labels().containsKey("end_timestamp_ns") ? kept : plain).add(Integer.parseInt(number));
            }
        }
        assertTrue(required.size() >= count / 25 && kept.containsAll(required), () -> required + " in " + kept);
        assertTrue(allowed.containsAll(kept), () -> kept + " in " + allowed);
        assertTrue(!plain.isEmpty() && kept.stream().noneMatch(plain::contains), plain::toString);
        assertTrue(output.contains("tail.requests " + count), output::toString);
        assertTrue(output.contains("tail.undecided 0") && output.contains("tail.held_bytes 0"), output::toString);
    }
}
