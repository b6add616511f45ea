import io.spanprof.Scope;
import io.spanprof.Spanprof;
import java.io.File;
import java.time.Duration;
import java.util.Map;

/** The Java counterpart of program.py: uses CPU time in threads, waits and labels its work, once before and once after the mark `later`. */
public final class Program {
    private Program() {}

    private static long sum;

    private static void burn(long milliseconds) {
        long end = System.nanoTime() + milliseconds * 1_000_000;
        while (System.nanoTime() < end) {
            for (int number = 0; number < 10_000; number++) {
                sum += number % 7;
            }
        }
    }

    private static void work() throws InterruptedException {
        Thread[] threads = {new Thread(() -> burn(300)), new Thread(() -> burn(300))};
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Thread.sleep(100);
        burn(200);
        System.gc();
    }

    private static void rounds(boolean isProfiled) throws InterruptedException {
        for (int round = 0; round < 3; round++) {
            if (isProfiled) {
                try (Scope scope = Spanprof.tag(Map.of("route", "/cart"))) {
                    work();
                }
            } else {
                work();
            }
        }
        if (isProfiled) {
            expect(Spanprof.flush(Duration.ofSeconds(20)));
        }
    }

    private static void expect(boolean isSo) {
        if (!isSo) {
            throw new IllegalStateException(Spanprof.stats().toString());
        }
    }

    public static void main(String[] words) throws InterruptedException {
        boolean isProfiled = words[0].equals("profiled");
        if (isProfiled) {
            expect(Spanprof.start());
        }
        rounds(isProfiled);
        new File("/system-calls/later").exists();
        rounds(isProfiled);
        if (isProfiled) {
            expect(Spanprof.stop());
        }
    }
}
