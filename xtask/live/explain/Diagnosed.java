import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/** The Java counterpart of program.py: java Diagnosed DIRECTORY PROBLEM. */
public final class Diagnosed {
    private static final long SECONDS = 6;
    private static final Map<Integer, byte[]> CACHE = new HashMap<>();
    private static final ArrayDeque<Object> SESSIONS = new ArrayDeque<>();
    private static final ReentrantLock LOCK = new ReentrantLock();
    private static double sum;

    private Diagnosed() {}

    // The parts of a request use about as much CPU time each.
    static void readCart() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 2);
        }
    }

    static void checkStock() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 3);
        }
    }

    static void renderPage() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 4);
        }
    }

    static void writeLog() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 5);
        }
    }

    static void loadUser() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 11);
        }
    }

    static void findOffers() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 12);
        }
    }

    static void sortRows() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 13);
        }
    }

    static void addTax() {
        for (int number = 0; number < 500_000; number++) {
            sum += Math.sqrt(number + 6);
        }
    }

    static void serve() {
        readCart();
        checkStock();
        renderPage();
        writeLog();
        loadUser();
        findOffers();
        sortRows();
        addTax();
    }

    static void priceCart() {
        String text = "A-";
        for (int number = 0; number < 200_000; number++) {
            text = Integer.toString(text.hashCode() + number);
        }
        sum += text.length();
    }

    static void buildGraph() {
        List<Object> nodes = new ArrayList<>();
        for (int number = 0; number < 200_000; number++) {
            nodes.add(new Object[] {number, nodes.isEmpty() ? null : nodes.get(nodes.size() - 1)});
        }
        SESSIONS.add(nodes);
        if (SESSIONS.size() > 12) {
            SESSIONS.poll();
        }
    }

    static void reserve() throws InterruptedException {
        LOCK.lock();
        try {
            Thread.sleep(5);
        } finally {
            LOCK.unlock();
        }
    }

    static void callBank() throws InterruptedException {
        Thread.sleep(100);
    }

    static void remember(int request) {
        CACHE.put(request, new byte[20_000]);
    }

    static void openSession() {
        if (SESSIONS.size() == 400) {
            SESSIONS.poll();
        }
        SESSIONS.add(new byte[40_000]);
    }

    interface Work {
        void run() throws InterruptedException;
    }

    static void repeat(Work work) {
        long until = System.nanoTime() + SECONDS * 1_000_000_000L;
        try {
            while (System.nanoTime() < until) {
                work.run();
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void inThreads(int count, Work work) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Thread thread = new Thread(() -> repeat(work));
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static void request(String endpoint, Work work) throws InterruptedException {
        Spanprof.tagWrapper(Map.of("endpoint", endpoint), () -> {
            work.run();
            return null;
        });
    }

    static void leaks() {
        for (int window = 0; window < 10; window++) {
            for (int request = 300 * window; request < 300 * window + 300; request++) {
                remember(request);
                openSession();
            }
            for (int number = 0; number < 10; number++) {
                serve();
            }
            // Objects are in use until a collection has found that they are not.
            System.gc();
            if (window < 9) {
                Spanprof.flush();
            }
        }
    }

    static void run(String problem) throws InterruptedException {
        switch (problem) {
            case "healthy" -> repeat(() -> request("/cart", Diagnosed::serve));
            case "hot" -> repeat(() -> {
                serve();
                priceCart();
            });
            case "collects" -> repeat(() -> {
                readCart();
                buildGraph();
            });
            case "convoy" -> inThreads(6, () -> {
                reserve();
                readCart();
            });
            case "waits" -> inThreads(2, () -> request("/pay", () -> {
                callBank();
                readCart();
            }));
            case "leaks" -> leaks();
            default -> throw new IllegalArgumentException(problem);
        }
    }

    public static void main(String[] words) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("live-explain").lock(true).offCpu(true)
                .destinations(List.of(Map.of("type", "file", "directory", words[0])))
                .uploadInterval(Duration.ofSeconds(60)).build());
        run(words[1]);
        Spanprof.stop();
        if (Double.isNaN(sum)) {
            throw new IllegalStateException();
        }
    }
}
