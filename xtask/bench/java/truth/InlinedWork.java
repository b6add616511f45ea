/**
 * Three small methods that the compiler inlines into their calling loop. The true cost of each is its cost alone, compiled the same
 * way, times the number of calls of the loop.
 */
final class InlinedWork {
    static final String[] METHODS = {"InlinedWork.smallHalf", "InlinedWork.smallThird", "InlinedWork.smallFifth"};
    private static final int ROUNDS = 4_000;

    private interface Loop {
        int run(int rounds, int x);
    }

    private InlinedWork() {}

    private static int smallHalf(int x) {
        for (int i = 0; i < 50; i++) {
            x = (x * 1103 + i) % 65_537;
        }
        return x;
    }

    private static int smallThird(int x) {
        for (int i = 0; i < 30; i++) {
            x = (x * 1109 + i) % 65_537;
        }
        return x;
    }

    private static int smallFifth(int x) {
        for (int i = 0; i < 20; i++) {
            x = (x * 1117 + i) % 65_537;
        }
        return x;
    }

    private static int loop(int rounds, int x) {
        for (int round = 0; round < rounds; round++) {
            x = smallFifth(smallThird(smallHalf(x)));
        }
        return x;
    }

    /* One loop for each method alone: it is inlined as in `loop`. */

    private static int aloneHalf(int rounds, int x) {
        for (int round = 0; round < rounds; round++) {
            x = smallHalf(x);
        }
        return x;
    }

    private static int aloneThird(int rounds, int x) {
        for (int round = 0; round < rounds; round++) {
            x = smallThird(x);
        }
        return x;
    }

    private static int aloneFifth(int rounds, int x) {
        for (int round = 0; round < rounds; round++) {
            x = smallFifth(x);
        }
        return x;
    }

    /** Uses so much CPU time in the loop. */
    static void mix(double cpuSeconds) {
        long end = Work.threadCpuNs() + (long) (cpuSeconds * 1e9);
        int x = 1;
        while (Work.threadCpuNs() < end) {
            x = loop(ROUNDS, x);
        }
        Work.sink += x;
    }

    /** Cost of each method alone, for the same number of calls, in nanoseconds. */
    static long[] truth() {
        Loop[] alone = {InlinedWork::aloneHalf, InlinedWork::aloneThird, InlinedWork::aloneFifth};
        long[] truth = new long[alone.length];
        for (int method = 0; method < alone.length; method++) {
            long best = Long.MAX_VALUE;
            for (int time = 0; time < 300; time++) {
                long begun = Work.threadCpuNs();
                Work.sink += alone[method].run(ROUNDS, time);
                best = Math.min(best, Work.threadCpuNs() - begun);
            }
            truth[method] = best;
        }
        return truth;
    }
}
