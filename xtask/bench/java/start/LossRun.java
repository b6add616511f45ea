import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Works, and stops in the middle of a window: CPU time that the profile contains.
 *
 * <pre>LossRun PROFILER RATE SECONDS FOLDER</pre>
 */
final class LossRun {
    private LossRun() {}

    public static void main(String[] words) throws Exception {
        Chain chain = new Chain(20);
        Work.mix(chain, Work.ARITHMETIC, 1);
        Profiler profiler = Profiler.named(words[0]);
        profiler.startKeeping(Integer.parseInt(words[1]), Files.createDirectories(Path.of(words[3])));
        long begun = Work.threadCpuNs();
        Work.mix(chain, Work.ARITHMETIC, Double.parseDouble(words[2]));
        long worked = Work.threadCpuNs() - begun;
        double seen = profiler.seen().stream().filter(one -> one.has("LossRun.main")).mapToDouble(Seen::ns).sum();
        Answer.say("lost_percent", 100 * (1 - seen / worked));
        System.exit(0);
    }
}
