package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.zip.CRC32C;

/** Computes checksums, by an intrinsic that the interpreter and C1 enter without a frame. */
public final class Checksums {
    private static final byte[] DATA = new byte[1 << 20];
    private static long sum;

    private Checksums() {}

    static void checksum() {
        CRC32C crc = new CRC32C();
        crc.update(DATA);
        sum += crc.getValue();
    }

    static void request() {
        for (int i = 0; i < 20; i++) {
            checksum();
        }
    }

    public static void main(String[] args) {
        Spanprof.start(SpanprofConfig.builder().serviceName("checksums").sampleRate(500).fileDirectory(args[0]).build());
        for (long end = System.nanoTime() + 1_500_000_000L; System.nanoTime() < end; ) {
            request();
        }
        System.out.println("stopped " + (Spanprof.stop() && sum != 0 ? 1 : 0));
    }
}
