// Changes a busy profiler ten times per second by calls, the watched file and requests at once; then compares totals. Arguments:
// the working directory, seconds. Prints `changes COUNT`, `file_seconds SECONDS`, `totals RATIO` and `panics COUNT`.

import com.sun.management.OperatingSystemMXBean;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;

final class Toggles {
    private static final AtomicInteger CHANGES = new AtomicInteger();
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static volatile int total;
    private static Path file;

    private interface Change {
        void apply(int number) throws Exception;
    }

    private static void work(long millis) {
        long until = System.nanoTime() + millis * 1_000_000;
        while (System.nanoTime() < until) {
            int sum = total;
            for (int number = 0; number < 50_000; number++) {
                sum = sum * 31 ^ number;
            }
            total = sum + new byte[4096].length;
        }
    }

    private static void write(String text) throws Exception {
        Path next = file.resolveSibling("spanprof.yaml.new");
        Files.writeString(next, text);
        Files.move(next, file, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    }

    private static void request(String method, String body) throws Exception {
        URI address = URI.create("http://" + Spanprof.stats().get("pull.address") + "/debug/spanprof");
        HttpRequest request = HttpRequest.newBuilder(address)
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .header("Authorization", "Bearer secret")
                .build();
        int status = CLIENT.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        if (status != 200) {
            throw new IllegalStateException(method + ": " + status);
        }
    }

    private static void byCall(int number) {
        Spanprof.update(SpanprofConfig.builder()
                .enabled(number % 2 == 0)
                .sampleRate(1 + number * 37 % 1000)
                .wall(number % 3 == 0)
                .build());
    }

    private static void byRequest(int number) throws Exception {
        if (number % 3 == 0) {
            request("PATCH", "{\"heap\": " + (number % 2 == 0) + ", \"lock\": " + (number % 2 == 1) + "}");
        } else {
            request(number % 3 == 1 ? "POST" : "DELETE", "");
        }
    }

    private static void byFile(int number) throws Exception {
        write("sample_rate: " + (1 + number % 500) + "\nenabled: " + (number % 2 == 0) + "\n");
    }

    private static Thread repeat(Change change, long end) {
        return started(() -> {
            try {
                for (int number = 0; System.nanoTime() < end; number++) {
                    change.apply(number);
                    CHANGES.incrementAndGet();
                    Thread.sleep(100);
                }
            } catch (Exception failure) {
                failure.printStackTrace();
                System.exit(1);
            }
        });
    }

    private static Thread started(Runnable body) {
        Thread thread = new Thread(body);
        thread.start();
        return thread;
    }

    private static long counter(String... names) {
        var stats = Spanprof.stats();
        long sum = 0;
        for (String name : names) {
            sum += stats.get(name) instanceof Long count ? count : 0;
        }
        return sum;
    }

    private static long processNs() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static long sampledNs() {
        Spanprof.flush();
        return counter("samples.cpu_ns", "samples.unseen_distributed_ns", "samples.unseen_shown_ns");
    }

    public static void main(String[] arguments) throws Exception {
        file = Path.of(arguments[0], "spanprof.yaml");
        write("sample_rate: 100\n");
        SpanprofConfig config = SpanprofConfig.builder()
                .set("fileDirectory", arguments[0])
                .set("configFile", file.toString())
                .set("pull", "127.0.0.1:0")
                .set("pullToken", "secret")
                .set("profiles", "all")
                .set("cpuBudget", "0")
                .build();
        if (!Spanprof.start(config)) {
            throw new IllegalStateException("not started");
        }
        long end = System.nanoTime() + (long) (Double.parseDouble(arguments[1]) * 1e9);
        List<Thread> threads = new ArrayList<>();
        threads.add(repeat(Toggles::byCall, end));
        threads.add(repeat(Toggles::byRequest, end));
        threads.add(repeat(Toggles::byFile, end));
        IntFunction<Thread> worker = number -> started(() -> {
            while (System.nanoTime() < end) {
                work(20);
            }
        });
        for (int number = 0; number < 4; number++) {
            threads.add(worker.apply(number));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("changes " + CHANGES.get());

        Spanprof.update(SpanprofConfig.builder().enabled(true).wall(false).heap(false).lock(false).build());
        Thread.sleep(1000);
        write("sample_rate: 123\n");
        long begun = System.nanoTime();
        while (!"123".equals(Spanprof.stats().get("config.sample_rate"))) {
            work(20);
        }
        System.out.println("file_seconds " + (System.nanoTime() - begun) / 1e9);

        Spanprof.update(SpanprofConfig.builder().enabled(false).build());
        long before = sampledNs();
        long enabledNs = 0;
        int[] rates = {20, 100, 1000};
        for (int number = 0; number < 50; number++) {
            // The statistics are read outside of the measured time.
            long own = counter("cost.own_cpu_ns");
            long started = processNs();
            Spanprof.update(SpanprofConfig.builder().enabled(true).sampleRate(rates[number % 3]).build());
            work(100);
            Spanprof.update(SpanprofConfig.builder().enabled(false).build());
            enabledNs += processNs() - started - (counter("cost.own_cpu_ns") - own);
            work(50);
        }
        System.out.println("totals " + (sampledNs() - before) / (double) enabledNs);
        System.out.println("panics " + counter("internal.panics"));
        Spanprof.stop();
    }
}
