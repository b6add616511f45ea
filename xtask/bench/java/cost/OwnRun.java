import io.spanprof.Spanprof;

/**
 * Work under spanprof for so long, every window delivered. Prints the profiler's own clocks, without the start, when all code is
 * reported.
 *
 * <pre>OwnRun spanprof RATE DEPTH SECONDS ADDRESS</pre>
 */
final class OwnRun {
    private OwnRun() {}

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        Chain chain = new Chain(Integer.parseInt(words[2]));
        profiler.start(Integer.parseInt(words[1]), words[4]);
        Work.mix(chain, Work.ARITHMETIC, 2);
        profiler.endWindow();
        long[] begun = read();
        long cpuBegun = Work.threadCpuNs();
        Work.mix(chain, Work.ARITHMETIC, Double.parseDouble(words[3]));
        profiler.endWindow();
        long[] ended = read();
        Answer.say("work_ns", Work.threadCpuNs() - cpuBegun);
        Answer.say("handler_ns", ended[0] - begun[0]);
        Answer.say("threads_ns", ended[1] - begun[1]);
        Answer.say("samples", ended[2] - begun[2]);
        Answer.say("windows", ended[3] - begun[3]);
        Answer.say("beginning_ns", begun[1]);
        Answer.say("clock", Spanprof.stats().get("clock.name"));
        profiler.stop();
    }

    private static long[] read() {
        String[] names = {"clock.handler_ns", "cost.own_cpu_ns", "samples.cpu", "windows.closed"};
        return java.util.Arrays.stream(names).mapToLong(OwnProfiler::counter).toArray();
    }
}
