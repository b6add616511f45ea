import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;

/** Virtual threads by reflection, since the programs are compiled for Java 17, and yields of work on them. Used by live suites too. */
final class Threads {
    private Threads() {}

    /** One virtual thread for each task. */
    static ExecutorService virtual() throws ReflectiveOperationException {
        return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    /** Called after each step of a request: yields after one, waits after another. A virtual thread may resume on another carrier. */
    static void giveWayAfter(int step) {
        if (step == 1) {
            Thread.yield();
        } else if (step == 2) {
            LockSupport.parkNanos(200_000);
        }
    }
}
