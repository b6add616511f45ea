import io.spanprof.ProfileFile;
import io.spanprof.Spanprof;
import java.nio.file.Path;
import java.util.List;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/**
 * 50, 30 and 20 % of the time in three methods, by the thread's CPU clock; small inlined methods, and native code. Compares the
 * shares and the total of the profile at a sample rate.
 *
 * <pre>Shares cpu|native RATE SECONDS</pre>
 */
final class Shares {
    private static double sink;
    private static final byte[] TEXT = text();

    private Shares() {}

    private static byte[] text() {
        byte[] text = new byte[1 << 16];
        for (int i = 0; i < text.length; i++) {
            text[i] = (byte) ("spanprof".charAt(i % 8) + (i * 31 % 7));
        }
        return text;
    }

    private static double step(double sum, int i) {
        return sum + Math.sqrt(i + sum);
    }

    private static double grow(double sum, int i) {
        return sum * 1.000001 + half(i);
    }

    private static double half(int i) {
        return i * 0.5;
    }

    private static int mix(int sum, int i) {
        return (sum * 31 + i) % 65_537;
    }

    static void first() {
        double sum = 0;
        for (int i = 0; i < 400_000; i++) {
            sum = step(sum, i);
        }
        sink += sum;
    }

    static void second() {
        double sum = 0;
        for (int i = 0; i < 800_000; i++) {
            sum = grow(sum, i);
        }
        sink += sum;
    }

    static void third() {
        int sum = 1;
        for (int i = 0; i < 400_000; i++) {
            sum = mix(sum, i);
        }
        sink += sum;
    }

    static void checksum() {
        CRC32 crc = new CRC32();
        for (int i = 0; i < 200; i++) {
            crc.update(TEXT);
        }
        sink += crc.getValue();
    }

    static void deflate() {
        Deflater deflater = new Deflater();
        deflater.setInput(TEXT);
        deflater.finish();
        byte[] out = new byte[1 << 16];
        while (!deflater.finished()) {
            sink += deflater.deflate(out);
        }
        deflater.end();
    }

    static void copy() {
        byte[] other = new byte[TEXT.length];
        for (int i = 0; i < 500; i++) {
            System.arraycopy(TEXT, 0, other, 0, TEXT.length);
        }
        sink += other[7];
    }

    private record Part(String name, Runnable work, int share) {}

    private static final List<Part> CPU = List.of(
            new Part("first", Shares::first, 50), new Part("second", Shares::second, 30), new Part("third", Shares::third, 20));
    private static final List<Part> NATIVE = List.of(
            new Part("checksum", Shares::checksum, 50), new Part("deflate", Shares::deflate, 30), new Part("copy", Shares::copy, 20));

    /** Runs a part until its thread's CPU clock has advanced by this time; returns the actual time. */
    private static long spend(Part part, long ns) {
        long begun = Suite.threadCpuNs();
        long spent;
        do {
            part.work().run();
            spent = Suite.threadCpuNs() - begun;
        } while (spent < ns);
        return spent;
    }

    public static void main(String[] words) throws Exception {
        List<Part> parts = words[0].equals("native") ? NATIVE : CPU;
        int rate = Integer.parseInt(words[1]);
        // Warm-up: compilation must not be part of the measurement.
        for (Part part : parts) {
            spend(part, 300_000_000L);
        }
        Path directory = Suite.folder();
        if (!Spanprof.start(Suite.into(directory).sampleRate(rate).build())) {
            Suite.fail("it did not start");
        }
        long[] truth = new long[parts.size()];
        // Rounds of a tenth of a second, of lengths that no rate divides.
        long rounds = Long.parseLong(words[2]) * 9;
        for (long round = 0; round < rounds; round++) {
            for (int i = 0; i < truth.length; i++) {
                truth[i] += spend(parts.get(i), parts.get(i).share() * 1_093_571L);
            }
        }
        Object clock = Spanprof.stats().get("clock.name");
        if (!Spanprof.stop()) {
            Suite.fail("not everything was delivered");
        }
        List<ProfileFile.Sample> samples = ProfileFile.readAll(directory);
        long[] seen = new long[parts.size()];
        for (ProfileFile.Sample sample : samples) {
            for (int i = 0; i < seen.length; i++) {
                if (sample.has("Shares." + parts.get(i).name())) {
                    seen[i] += sample.nanoseconds();
                }
            }
        }
        // Reading the clock is part of the measured time.
        long whole = ProfileFile.sum(samples, sample -> sample.has("Shares.spend"));
        checkShares(words, String.valueOf(clock), parts, truth, seen, whole);
    }

    private static void checkShares(
            String[] words, String clock, List<Part> parts, long[] truth, long[] seen, double whole) {
        double all = java.util.Arrays.stream(truth).sum();
        double total = java.util.Arrays.stream(seen).sum();
        double seconds = all / 1e9;
        // Minimum number of samples: a kernel with 250 ticks per second limits the timer.
        double count = seconds * Math.min(250, Integer.parseInt(words[1]));
        StringBuilder line = new StringBuilder(Suite.java() + ", " + words[0] + " at " + words[1] + " Hz by " + clock + ":");
        double worst = 0;
        for (int i = 0; i < truth.length; i++) {
            double expected = truth[i] / all;
            double measured = seen[i] / total;
            double points = 100 * (measured - expected);
            worst = Math.max(worst, Math.abs(points) - 300 * Math.sqrt(expected * (1 - expected) / count));
            line.append(String.format(" %s %.2f %% (%+.2f)", parts.get(i).name(), 100 * measured, points));
        }
        line.append(String.format("; total %+.2f %% of %.1f s", 100 * (whole / all - 1), seconds));
        System.out.println(line);
        // Three standard errors, and a bias of half a percentage point.
        if (worst > 0.5) {
            Suite.fail("shares differ by " + String.format("%.2f", worst) + " points more than chance allows");
        }
        // The first and the last sample of a run are inexact by a period each.
        double bound = 0.01 + 2.0 / (seconds * Integer.parseInt(words[1]));
        if (Math.abs(whole / all - 1) > bound) {
            Suite.fail("the total differs by more than " + String.format("%.1f", 100 * bound) + " %");
        }
    }
}
