import io.spanprof.Spanprof;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * An idle server, observed from outside: the profiler's threads sleep, except for windows with samples of the VM's own
 * threads.
 *
 * <pre>Idle SECONDS</pre>
 */
final class Idle {
    /** A garbage collection or a compiled method accounts for many samples. */
    private static final int TRIES = 5;
    /** Wakeups per window with a sample: at the sample, at its end, for its delivery, and after its delivery. */
    private static final int LOOKS_OF_A_WINDOW = 4;

    private Idle() {}

    /** Voluntary context switches of the profiler's threads. */
    private static long looks(long process) throws Exception {
        long switches = 0;
        try (Stream<Path> threads = Files.list(Path.of("/proc/" + process + "/task"))) {
            for (Path thread : threads.toList()) {
                List<String> status;
                try {
                    status = Files.readAllLines(thread.resolve("status"));
                } catch (IOException ended) {
                    // A thread of the VM, or a profiler thread that wrote a file.
                    continue;
                }
                if (status.get(0).matches("Name:\\s+spanprof.*")) {
                    String line = status.stream().filter(text -> text.startsWith("voluntary_ctxt_switches:")).findFirst().orElseThrow();
                    switches += Long.parseLong(line.substring(line.indexOf(':') + 1).trim());
                }
            }
        }
        return switches;
    }

    private static long windows(Path directory) throws IOException {
        try (Stream<Path> files = Files.list(directory)) {
            return files.filter(file -> file.toString().endsWith(".pb.gz")).count();
        }
    }

    private static void program(Path directory) throws Exception {
        if (!Spanprof.start(Suite.into(directory).sampleRate(100).set("uploadInterval", 1).build())) {
            Suite.fail("it did not start");
        }
        try (ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            System.out.println("ready");
            server.accept();
        }
    }

    public static void main(String[] words) throws Exception {
        if (words.length > 1) {
            program(Path.of(words[1]));
            return;
        }
        long seconds = Long.parseLong(words[0]);
        Path directory = Suite.folder();
        Process process = Suite.program("Idle", words[0], directory.toString()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(process.getInputStream()))) {
            if (!"ready".equals(reader.readLine())) {
                Suite.fail("it did not start");
            }
            List<String> told = new ArrayList<>();
            boolean sleeps;
            do {
                Thread.sleep(4000);
                long windowsBefore = windows(directory);
                long before = looks(process.pid());
                Thread.sleep(seconds * 1000);
                long looks = looks(process.pid()) - before;
                // One window was open before, one may be in delivery.
                long windows = windows(directory) - windowsBefore;
                sleeps = looks <= LOOKS_OF_A_WINDOW * (windows + 1) && windows <= seconds / 2;
                told.add(looks + " for " + windows + " windows");
            } while (!sleeps && told.size() < TRIES);
            System.out.println(Suite.java() + ": wake-ups in " + seconds + " s each: " + told);
            if (!sleeps) {
                process.destroyForcibly();
                Suite.fail("our threads do not sleep");
            }
            process.destroy();
            if (!process.waitFor(60, TimeUnit.SECONDS) || process.exitValue() != 143) {
                process.destroyForcibly();
                Suite.fail("it did not end as it was told");
            }
        } finally {
            process.destroyForcibly();
        }
    }
}
