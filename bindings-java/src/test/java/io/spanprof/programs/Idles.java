package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/** Waits under the wall clock, and counts how often the thread that looks went to sleep. */
public final class Idles {
    private static final String SLEEPS = "voluntary_ctxt_switches:";

    private Idles() {}

    static void waits(long millis) throws InterruptedException {
        Thread.sleep(millis);
    }

    private static long looks() throws IOException {
        try (Stream<Path> threads = Files.list(Path.of("/proc/self/task"))) {
            for (Path thread : threads.toList()) {
                List<String> status = status(thread);
                if (status.stream().anyMatch(line -> line.matches("Name:\\s+spanprof-wall"))) {
                    String line = status.stream().filter(text -> text.startsWith(SLEEPS)).findFirst().orElseThrow();
                    return Long.parseLong(line.substring(SLEEPS.length()).trim());
                }
            }
        }
        throw new IllegalStateException("no thread looks");
    }

    /** Empty when the thread has ended. */
    private static List<String> status(Path thread) {
        try {
            return Files.readAllLines(thread.resolve("status"));
        } catch (IOException ended) {
            return List.of();
        }
    }

    public static void main(String[] words) throws Exception {
        // What starting the VM was is over.
        Thread.sleep(1000);
        Spanprof.start(SpanprofConfig.builder().serviceName("idles").wall(true).wallRate(100).fileDirectory(words[0]).build());
        // Until the thread has its name.
        Thread.sleep(300);
        long before = looks();
        long began = System.nanoTime();
        waits(Long.parseLong(words[1]));
        System.out.println("looks " + (looks() - before));
        System.out.println("millis " + (System.nanoTime() - began) / 1_000_000);
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
