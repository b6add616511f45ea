import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;

/**
 * Threads with one activity each: compute, sleep, or wait for a socket. {@code mixed}: their wall-clock profile. {@code idle}: none
 * computes, so the process's CPU time is the profiler's.
 *
 * <pre>WallRun PROFILER mixed|idle THREADS RATE SECONDS FOLDER</pre>
 */
final class WallRun {
    private static volatile double sink;

    private WallRun() {}

    static void compute() {
        while (true) {
            sink = Work.half(100_000);
        }
    }

    static void sleep() {
        try {
            while (true) {
                Thread.sleep(3_600_000);
            }
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    static void read(Socket socket) {
        try {
            socket.getInputStream().read();
        } catch (IOException over) {
            System.err.println("no longer reading: " + over.getMessage());
        }
    }

    private static void begin(CountDownLatch ready, Runnable work) {
        Thread thread = new Thread(() -> {
            ready.countDown();
            work.run();
        });
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        boolean isMixed = words[1].equals("mixed");
        int threads = Integer.parseInt(words[2]);
        CountDownLatch ready = new CountDownLatch(threads);
        List<Socket> open = new ArrayList<>();
        try (ServerSocket server = new ServerSocket(0, threads, InetAddress.getLoopbackAddress())) {
            for (int thread = 0; thread < threads; thread++) {
                int kind = thread % 5;
                if (isMixed && kind == 0) {
                    begin(ready, WallRun::compute);
                } else if (kind <= 2) {
                    begin(ready, WallRun::sleep);
                } else {
                    Socket socket = new Socket(server.getInetAddress(), server.getLocalPort());
                    open.add(socket);
                    open.add(server.accept());
                    begin(ready, () -> read(socket));
                }
            }
        }
        ready.await();
        Thread.sleep(1000);
        Path folder = Files.createDirectories(Path.of(words[5]));
        if (!words[0].equals("none")) {
            profiler.startWall(Integer.parseInt(words[3]), folder);
        }
        long started = System.nanoTime();
        long millis = (long) (1000 * Double.parseDouble(words[4]));
        // Work of the start and of the compilers is not measured.
        for (int time = 0; time < 5; time++) {
            Work.processCpuNs();
            Thread.sleep(millis / 10);
        }
        long cpuBegun = Work.processCpuNs();
        long begun = System.nanoTime();
        Thread.sleep(millis);
        Answer.say("cpu_percent", 100.0 * (Work.processCpuNs() - cpuBegun) / (System.nanoTime() - begun));
        if (isMixed) {
            double waitedNs = System.nanoTime() - started;
            List<Seen> seen = profiler.seen();
            Answer.say("seen_ns", List.of(Seen.ns(seen, "WallRun.compute"), Seen.ns(seen, "WallRun.sleep"), Seen.ns(seen, "WallRun.read")));
            Answer.say("really_ns", waitedNs);
            Answer.say("samples", seen.stream().mapToLong(Seen::count).sum());
        }
        // The sockets were open until now.
        Answer.say("sockets", open.size());
        System.exit(0);
    }
}
