import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Virtual threads by name: the programs are compiled for Java 17. */
final class Threads {
    private Threads() {}

    /** One virtual thread for each task. */
    static ExecutorService virtual() throws ReflectiveOperationException {
        return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }
}
