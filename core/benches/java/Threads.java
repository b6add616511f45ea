import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;

/** Virtual threads by name, since the programs are compiled for Java 17, and how work on them gives way. The live suites use it too. */
final class Threads {
    private Threads() {}

    /** One virtual thread for each task. */
    static ExecutorService virtual() throws ReflectiveOperationException {
        return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    /** After the steps of a request: gives way after one of them, waits after another. A virtual thread may go on elsewhere. */
    static void giveWayAfter(int step) {
        if (step == 1) {
            Thread.yield();
        } else if (step == 2) {
            LockSupport.parkNanos(200_000);
        }
    }
}
