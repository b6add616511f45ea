package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/** Waits under the wall clock, and counts the voluntary context switches of the wall sampler's thread. */
public final class Idles {
    private static final String SLEEPS = "voluntary_ctxt_switches:";

    private Idles() {}

    static void waits(long millis) throws InterruptedException {
        Thread.sleep(millis);
    }

    private static long wakeups() throws IOException {
        try (Stream<Path> threads = Files.list(Path.of("/proc/self/task"))) {
            for (Path thread : threads.toList()) {
                List<String> status = status(thread);
                if (status.stream().anyMatch(line -> line.matches("Name:\\s+spanprof-wall"))) {
                    String line = status.stream().filter(text -> text.startsWith(SLEEPS)).findFirst().orElseThrow();
                    return Long.parseLong(line.substring(SLEEPS.length()).trim());
                }
            }
        }
        throw new IllegalStateException("the wall sampler's thread was not found");
    }

    /** The thread's status; empty if it has ended. */
    private static List<String> status(Path thread) {
        try {
            return Files.readAllLines(thread.resolve("status"));
        } catch (IOException ended) {
            return List.of();
        }
    }

    public static void main(String[] args) throws Exception {
        // After the start of the VM.
        Thread.sleep(1000);
        Spanprof.start(SpanprofConfig.builder().serviceName("idles").wall(true).wallRate(100).fileDirectory(args[0]).build());
        // Waits until the thread has its name.
        Thread.sleep(300);
        long before = wakeups();
        long began = System.nanoTime();
        waits(Long.parseLong(args[1]));
        System.out.println("wakeups " + (wakeups() - before));
        System.out.println("millis " + (System.nanoTime() - began) / 1_000_000);
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
