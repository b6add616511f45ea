import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Safepoint pauses of the stress program with and without the profiler, from the VM's safepoint log: the time to reach the
 * safepoint, and the total.
 *
 * <pre>Pauses SECONDS</pre>
 */
final class Pauses {
    private static final double MOST_ADDED_MS = 20;
    /** Two processors with twelve threads cause pauses without the profiler. */
    private static final int TRIES = 3;
    private static final Pattern SAFEPOINT = Pattern.compile("Reaching safepoint: (\\d+) ns.*Total: (\\d+) ns");

    private Pauses() {}

    /** Pauses of one run, in order. */
    private record Waits(List<Long> reaching, List<Long> all) {
        static Waits of(Path log) throws IOException {
            List<Long> reaching = new ArrayList<>();
            List<Long> all = new ArrayList<>();
            for (String line : Files.readAllLines(log)) {
                Matcher safepoint = SAFEPOINT.matcher(line);
                if (safepoint.find()) {
                    reaching.add(Long.parseLong(safepoint.group(1)));
                    all.add(Long.parseLong(safepoint.group(2)));
                }
            }
            reaching.sort(null);
            all.sort(null);
            return new Waits(reaching, all);
        }

        static double ms(List<Long> inOrder, double share) {
            int rank = (int) Math.ceil(inOrder.size() * share) - 1;
            return inOrder.get(Math.max(0, Math.min(rank, inOrder.size() - 1))) / 1e6;
        }

        double longMs() {
            return ms(all, 0.999);
        }

        @Override
        public String toString() {
            return String.format(Locale.ROOT, "%d safepoints, reached within %.2f and %.2f ms, over within %.2f and %.2f ms",
                    all.size(), ms(reaching, 0.5), ms(reaching, 0.999), ms(all, 0.5), longMs());
        }
    }

    private static Waits stress(String seconds, Path log, String... how) throws Exception {
        Stream<String> begin = Stream.of("-Xlog:safepoint:file=" + log + "::filecount=0", "Stress", seconds);
        String[] words = Stream.concat(begin, Stream.of(how)).toArray(String[]::new);
        Process process = Suite.program(words).redirectErrorStream(true).redirectOutput(new File("/dev/null")).start();
        try {
            if (!process.waitFor(Long.parseLong(seconds) * 2 + 60, TimeUnit.SECONDS) || process.exitValue() != 0) {
                Suite.fail("the stress failed: " + String.join(" ", words));
            }
        } finally {
            process.destroyForcibly();
        }
        Waits waits = Waits.of(log);
        if (waits.all().size() < 100) {
            Suite.fail("only " + waits.all().size() + " safepoints in " + seconds + " s");
        }
        return waits;
    }

    public static void main(String[] words) throws Exception {
        Path log = Suite.folder().resolve("safepoints");
        double addedMs = 0;
        for (int attempt = 0; attempt < TRIES; attempt++) {
            Waits alone = stress(words[0], log, "alone");
            Waits profiled = stress(words[0], log);
            addedMs = profiled.longMs() - alone.longMs();
            System.out.println(Suite.java() + " by itself: " + alone);
            System.out.println(Suite.java() + " profiled: " + profiled);
            if (addedMs <= MOST_ADDED_MS) {
                return;
            }
        }
        Suite.fail("of a thousand safepoints one takes " + addedMs + " ms longer");
    }
}
