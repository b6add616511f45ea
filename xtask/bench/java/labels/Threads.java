import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Virtual threads by reflection, since the programs are compiled for older versions. Used by the live suite too. */
final class Threads {
    private Threads() {}

    /** One virtual thread for each task. */
    static ExecutorService virtual() throws ReflectiveOperationException {
        return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }
}
