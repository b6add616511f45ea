import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.File;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;

/** The Java counterpart of program.py, with a child process of another program. */
public final class Program {
    private static final long NANOSECONDS = 350_000_000;
    private static String built;

    private Program() {}

    private static int work(int number) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (int round = 0; round < 10_000; round++) {
            digest.update(String.valueOf(round * number).getBytes());
        }
        for (long end = System.nanoTime() + NANOSECONDS; System.nanoTime() < end;) {
            built = "x".repeat(number * 100);
        }
        return Arrays.hashCode(digest.digest());
    }

    private static int labelled(boolean isProfiled, int number) throws Exception {
        if (!isProfiled) {
            return work(number);
        }
        try (Scope scope = Spanprof.tag(Map.of("k", number))) {
            return work(number);
        }
    }

    private static void marked(Runnable call) {
        new File("/faults/begin").exists();
        try {
            call.run();
        } finally {
            new File("/faults/end").exists();
        }
    }

    public static void main(String[] words) throws Exception {
        boolean isProfiled = words[0].equals("profiled");
        int[] results = new int[2];
        System.out.println("ready");
        System.in.read();
        if (isProfiled) {
            // Loads the class, as an import does.
            Spanprof.isRunning();
            SpanprofConfig config = SpanprofConfig.builder().fileDirectory(System.getenv("DIRECTORY"))
                    .uploadInterval(Duration.ofMillis(100)).stopTimeout(Duration.ofSeconds(10)).build();
            marked(() -> Spanprof.start(config));
        }
        Thread[] threads = new Thread[results.length];
        for (int i = 0; i < threads.length; i++) {
            int number = i + 1;
            threads[i] = new Thread(() -> {
                try {
                    results[number - 1] = labelled(isProfiled, number);
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Process child = new ProcessBuilder("/bin/echo", "child").start();
        String ofChild = new String(child.getInputStream().readAllBytes()).trim() + " " + child.waitFor();
        if (isProfiled) {
            marked(Spanprof::stop);
        }
        System.out.println(Arrays.toString(results) + " " + ofChild);
    }
}
