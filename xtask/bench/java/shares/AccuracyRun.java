import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/**
 * Runs a known mix under a profiler; prints the true shares by the thread's CPU clock, and those of the profiler.
 * {@code cycle-N}: a part of 30 % of each N ms of CPU time.
 *
 * <pre>AccuracyRun PROFILER mix|cycle-N|native|inlined RATE CPU_SECONDS FOLDER</pre>
 */
final class AccuracyRun {
    private static final int DEPTH = 20;

    private AccuracyRun() {}

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        boolean isInlined = words[1].equals("inlined");
        List<Work.Part> parts = Work.parts(words[1]);
        Chain chain = new Chain(DEPTH);
        Path folder = Files.createDirectories(Path.of(words[4]));
        int rate = Integer.parseInt(words[2]);
        // As in a service: code compiled after the first start has more debug info.
        profiler.startKeeping(rate, Files.createDirectories(folder.resolve("before")));
        profiler.seen();
        long[] truth = new long[parts.size()];
        burn(words[1], chain, parts, 1.5, truth);
        Arrays.fill(truth, 0);
        profiler.startKeeping(rate, folder);
        long begun = Work.threadCpuNs();
        burn(words[1], chain, parts, Double.parseDouble(words[3]), truth);
        long whole = Work.threadCpuNs() - begun;
        List<Seen> seen = profiler.seen();
        String[] methods = isInlined ? InlinedWork.METHODS : parts.stream().map(Work.Part::method).toArray(String[]::new);
        // Total of the parts' caller: time of inlined parts that is charged to the caller counts as an error.
        List<Seen> own = seen.stream().filter(one -> one.has("AccuracyRun.burn")).toList();
        Answer.say("truth_ns", Arrays.stream(isInlined ? InlinedWork.truth() : truth).boxed().toList());
        Answer.say("seen_ns", Arrays.stream(methods).map(method -> Seen.ns(own, method)).toList());
        Answer.say("whole_ns", whole);
        Answer.say("whole_seen_ns", own.stream().mapToDouble(Seen::ns).sum());
        Answer.say("caller_seen_ns", Seen.ns(own, InlinedWork.CALLER));
        Answer.say("samples", own.stream().mapToLong(Seen::count).sum());
        double all = seen.stream().mapToDouble(Seen::ns).sum();
        Answer.say("broken", seen.stream().filter(Seen::isBroken).mapToDouble(Seen::ns).sum() / all);
        Answer.say("frames_without_line", own.stream().mapToLong(one -> one.framesWithoutLine() * one.count()).sum());
        Answer.say("frames", own.stream().mapToLong(one -> one.methods().size() * one.count()).sum());
        System.exit(0);
    }

    private static void burn(String kind, Chain chain, List<Work.Part> parts, double cpuSeconds, long[] truth) {
        if (kind.equals("inlined")) {
            InlinedWork.mix(cpuSeconds);
        } else if (kind.startsWith(Work.CYCLE)) {
            Work.periodic(chain, parts, cpuSeconds, truth);
        } else {
            Work.mix(chain, parts, cpuSeconds, truth);
        }
    }
}
