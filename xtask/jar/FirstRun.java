import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.File;
import java.util.Collections;

/** First run of the JAR: started in code or as an agent, work under a label, a profile on disk. */
public class FirstRun {
    static double sink;

    public static void main(String[] words) {
        if (words[0].equals("library")) {
            Spanprof.start(SpanprofConfig.builder().serviceName("first-run").fileDirectory(words[1]).build());
        }
        check(Spanprof.isRunning(), "the profiler runs");
        Spanprof.tagWrapper(Collections.singletonMap("endpoint", "/first"), () -> {
            for (long end = System.nanoTime() + 500_000_000L; System.nanoTime() < end; ) {
                sink += Math.sqrt(end);
            }
        });
        check(Spanprof.stop(), "everything was delivered");
        String[] files = new File(words[1]).list();
        check(files != null && files.length > 0, "a profile lies in the directory");
        System.out.println("first run: " + files[0]);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }
}
