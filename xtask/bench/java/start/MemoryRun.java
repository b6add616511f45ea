import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Resident memory of a process after two windows of work under a profiler.
 *
 * <pre>MemoryRun PROFILER RATE SECONDS ADDRESS</pre>
 */
final class MemoryRun {
    private MemoryRun() {}

    public static void main(String[] words) throws Exception {
        double seconds = Double.parseDouble(words[2]);
        Chain chain = new Chain(20);
        Work.mix(chain, Work.ARITHMETIC, 1);
        int rate = Integer.parseInt(words[1]);
        Profiler profiler = Profiler.named(words[0]);
        profiler.start(rate, words[3]);
        Work.mix(chain, Work.ARITHMETIC, seconds / 2);
        if (profiler.endWindow()) {
            profiler.start(rate, words[3]);
        }
        Work.mix(chain, Work.ARITHMETIC, seconds / 2);
        profiler.endWindow();
        Answer.say("resident_kb", residentKb());
        System.exit(0);
    }

    private static long residentKb() throws Exception {
        String line = Files.readAllLines(Path.of("/proc/self/status")).stream().filter(text -> text.startsWith("VmRSS:"))
                .findFirst().orElseThrow();
        return Long.parseLong(line.replaceAll("\\D", ""));
    }
}
