import java.lang.management.ManagementFactory;

/** The work of the Java programs, independent of spanprof. */
final class Work {
    private Work() {}

    /** Uses CPU time of this thread; every profile must contain this function. */
    static long fieldWork(long milliseconds) {
        var clocks = ManagementFactory.getThreadMXBean();
        long began = clocks.getCurrentThreadCpuTime();
        long sum = 0;
        while (clocks.getCurrentThreadCpuTime() - began < milliseconds * 1_000_000) {
            for (int number = 0; number < 100_000; number++) {
                sum += number % 7;
            }
        }
        return sum;
    }
}
