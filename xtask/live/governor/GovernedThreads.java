import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/**
 * 400 blocked threads: idle, then a burst of one function, then idle. Prints the profiler's CPU time in each 10 s as `window ELAPSED_NS
 * COST_NS PROCESS_NS SAMPLE_RATE LIMITED_BY`. Arguments: the directory of the profiles, idle windows, burst windows.
 */
final class GovernedThreads {
    private static long total;

    private GovernedThreads() {
    }

    private static void hotFunction(long until) {
        while (System.nanoTime() < until) {
            for (int number = 0; number < 100_000; number++) {
                total = total * 31 ^ number;
            }
        }
    }

    private static long count(Map<String, Object> stats, String name) {
        return ((Number) stats.get(name)).longValue();
    }

    private static long cost(Map<String, Object> stats) {
        return count(stats, "cost.own_cpu_ns") + count(stats, "clock.handler_ns") + count(stats, "clock.delivery_ns");
    }

    private static void window() throws InterruptedException {
        long began = System.nanoTime();
        Map<String, Object> before = Spanprof.stats();
        Thread.sleep(10_000);
        Map<String, Object> stats = Spanprof.stats();
        long used = count(stats, "cost.process_cpu_ns") - count(before, "cost.process_cpu_ns");
        System.out.println("window " + (System.nanoTime() - began) + " " + (cost(stats) - cost(before)) + " " + used + " "
            + stats.get("governor.sample_rate") + " " + stats.get("governor.limited_by"));
    }

    public static void main(String[] arguments) throws InterruptedException {
        CountDownLatch over = new CountDownLatch(1);
        for (int index = 0; index < 400; index++) {
            Thread blocked = new Thread(() -> {
                try {
                    over.await();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            });
            blocked.setDaemon(true);
            blocked.start();
        }
        Spanprof.start(SpanprofConfig.builder().fileDirectory(arguments[0]).build());
        Thread.sleep(21_000);
        for (int index = 0; index < Integer.parseInt(arguments[1]); index++) {
            window();
        }
        int burst = Integer.parseInt(arguments[2]);
        long until = System.nanoTime() + 10_000_000_000L * burst;
        Thread[] workers = new Thread[4];
        for (int index = 0; index < workers.length; index++) {
            workers[index] = new Thread(() -> hotFunction(until));
            workers[index].start();
        }
        for (int index = 0; index < burst; index++) {
            window();
        }
        for (Thread worker : workers) {
            worker.join();
        }
        window();
        Spanprof.stop();
    }
}
