import io.spanprof.Spanprof;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.StringJoiner;

/**
 * Six phases of equal CPU time under a label. Prints {@code phase NAME NS} with the kernel's CPU time of the thread in each
 * (schedstat), then {@code stats JSON}. The settings are environment variables.
 */
public final class Phases {
    private Phases() {}

    private static long ran() throws Exception {
        return Long.parseLong(Files.readString(Path.of("/proc/thread-self/schedstat")).split(" ")[0]);
    }

    private static long burn(long ns) throws Exception {
        long end = ran() + ns;
        long total = 0;
        while (ran() < end) {
            for (long number = 0; number < 1_000_000; number++) {
                total = total * 31 + (number ^ (total >>> 7));
            }
        }
        return total;
    }

    public static void main(String[] args) throws Exception {
        // Compiled before the phases begin.
        long total = burn(500_000_000L);
        Spanprof.start();
        // Loads the classes of scopes, outside of the phases.
        total += Spanprof.tagWrapper(Map.of("phase", "none"), () -> burn(1_000_000L));
        for (int number = 0; number < 6; number++) {
            String phase = "p" + number;
            long before = ran();
            total += Spanprof.tagWrapper(Map.of("phase", phase), () -> burn(250_000_000L));
            long used = ran() - before;
            System.out.println("phase " + phase + " " + used);
            Thread.sleep(20);
        }
        StringJoiner json = new StringJoiner(",", "stats {", "}");
        Spanprof.stats().forEach((name, value) -> {
            if (value instanceof Number) {
                json.add("\"" + name + "\":" + value);
            }
        });
        System.out.println(json);
        Spanprof.stop();
        System.err.println(total);
    }
}
