import io.spanprof.Spanprof;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Programs that exit at a random time, in each way that a program can exit: the exit code must be that without the profiler, and
 * none may hang.
 *
 * <pre>Exits PROGRAMS</pre>
 */
final class Exits {
    /** Kinds of exit with the expected exit code: 128 plus the signal's number for signals. */
    private static final Map<String, Integer> WAYS = new LinkedHashMap<>();

    static {
        WAYS.put("exit", 7);
        WAYS.put("exitInScope", 8);
        WAYS.put("exitWhileStopping", 9);
        WAYS.put("exitWhileFlushing", 10);
        WAYS.put("halt", 11);
        WAYS.put("throws", 1);
        WAYS.put("returns", 0);
        WAYS.put("stops", 0);
        WAYS.put("terminated", 143);
        WAYS.put("killed", 137);
    }

    private static volatile boolean isOver;
    private static volatile double sink;

    private Exits() {}

    /** Threads that work, start and end. */
    private static void churn() {
        for (int number = 0; number < 3; number++) {
            Thread thread = new Thread(() -> {
                while (!isOver) {
                    Spanprof.tagWrapper(Map.of("work", "churn"), () -> sink += Math.sqrt(sink + 1));
                    Thread brief = new Thread(() -> sink += new byte[4096].length);
                    brief.start();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static void program(String way, Path directory) throws Exception {
        Spanprof.start(Suite.into(directory).sampleRate(2000).wall(true).set("uploadInterval", 1).build());
        churn();
        Thread.sleep(ThreadLocalRandom.current().nextInt(300));
        switch (way) {
            case "exit" -> System.exit(7);
            case "exitInScope" -> Spanprof.tagWrapper(Map.of("at", "exit"), () -> System.exit(8));
            case "exitWhileStopping" -> {
                new Thread(Spanprof::stop).start();
                System.exit(9);
            }
            case "exitWhileFlushing" -> {
                new Thread(Spanprof::flush).start();
                System.exit(10);
            }
            case "halt" -> Runtime.getRuntime().halt(11);
            case "throws" -> throw new IllegalStateException("mine");
            case "returns" -> isOver = true;
            case "stops" -> {
                Spanprof.stop();
                isOver = true;
            }
            default -> {
                System.out.println("ready");
                Thread.sleep(60_000);
            }
        }
    }

    private static void one(String way, Path directory) throws Exception {
        File output = File.createTempFile("spanprof-live-", ".txt");
        Process process = Suite.program("Exits", "1", way, directory.toString()).redirectErrorStream(true).redirectOutput(output).start();
        if (way.equals("terminated") || way.equals("killed")) {
            long until = System.nanoTime() + 60_000_000_000L;
            while (!Files.readString(output.toPath()).contains("ready") && process.isAlive() && System.nanoTime() < until) {
                Thread.sleep(20);
            }
            if (way.equals("killed")) {
                process.destroyForcibly();
            } else {
                process.destroy();
            }
        }
        boolean ended = process.waitFor(60, TimeUnit.SECONDS);
        String text = new String(Files.readAllBytes(output.toPath()), StandardCharsets.UTF_8);
        output.delete();
        if (!ended) {
            process.destroyForcibly();
            Suite.fail(way + ": hung\n" + text);
        }
        if (process.exitValue() != WAYS.get(way)) {
            Suite.fail(way + ": ended with " + process.exitValue() + ", expected " + WAYS.get(way) + "\n" + text);
        }
    }

    public static void main(String[] words) throws Exception {
        if (words.length > 1) {
            program(words[1], Path.of(words[2]));
            return;
        }
        List<String> names = List.copyOf(WAYS.keySet());
        Path directory = Suite.folder();
        Map<String, Integer> ended = new LinkedHashMap<>();
        for (int number = 0; number < Integer.parseInt(words[0]); number++) {
            String way = names.get(number % names.size());
            one(way, directory);
            ended.merge(way, 1, Integer::sum);
        }
        System.out.println(Suite.java() + ": " + ended);
    }
}
