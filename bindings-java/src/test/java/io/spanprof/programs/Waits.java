package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** Threads that sleep, read without end, and work, for a given time. */
public final class Waits {
    private static volatile double sum;
    private static volatile boolean isOver;

    private Waits() {}

    static void sleeps() throws InterruptedException {
        while (!isOver) {
            Thread.sleep(10_000);
        }
    }

    static void reads(Socket socket) throws IOException {
        socket.getInputStream().read();
    }

    static void works() {
        while (!isOver) {
            sum = Math.sqrt(sum + 1);
        }
    }

    /** The work of a thread. */
    private interface Body {
        void run() throws Exception;
    }

    private static void start(List<Thread> threads, CountDownLatch begun, Body body) {
        Thread thread = new Thread(() -> {
            begun.countDown();
            try {
                body.run();
            } catch (Exception over) {
                sum = 0;
            }
        });
        thread.setDaemon(true);
        thread.start();
        threads.add(thread);
    }

    public static void main(String[] args) throws Exception {
        int sleepers = 8;
        int readers = 6;
        int workers = 2;
        List<Thread> threads = new ArrayList<>();
        CountDownLatch begun = new CountDownLatch(sleepers + readers + workers);
        try (ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            for (int i = 0; i < sleepers; i++) {
                start(threads, begun, Waits::sleeps);
            }
            for (int i = 0; i < readers; i++) {
                Socket socket = new Socket(server.getInetAddress(), server.getLocalPort());
                start(threads, begun, () -> reads(socket));
            }
            for (int i = 0; i < workers; i++) {
                start(threads, begun, () -> Spanprof.tagWrapper(Collections.singletonMap("job", "works"), () -> works()));
            }
            begun.await();
            // All threads have started; wait until they are in their final state.
            Thread.sleep(200);
            SpanprofConfig.Builder settings = SpanprofConfig.builder()
                    .serviceName("waits").cpu(false).wall(true).wallRate(50).fileDirectory(args[0])
                    .offCpu(true).threads(true);
            if (args.length > 2) {
                settings.set("stackWalk", args[2]);
            }
            Spanprof.start(settings.build());
            Thread.sleep(Long.parseLong(args[1]));
            Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
            System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
            isOver = true;
        }
    }
}
