import java.util.List;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/** Work in native code or stubs of the VM and its libraries. */
final class NativeWork {
    private static final int TURNS_PER_ROUND = 4000;
    private static final byte[] TEXT = text();

    static final List<Work.Part> PARTS = List.of(
            new Work.Part("NativeWork.copy", 57, NativeWork::copy), new Work.Part("NativeWork.deflate", 92, NativeWork::deflate),
            new Work.Part("NativeWork.checksum", 10, NativeWork::checksum));

    private NativeWork() {}

    private static byte[] text() {
        byte[] text = new byte[1 << 14];
        for (int i = 0; i < text.length; i++) {
            text[i] = (byte) ("spanprof".charAt(i % 8) + (i * 31 % 7));
        }
        return text;
    }

    static double copy(int turns) {
        byte[] other = new byte[TEXT.length];
        for (int i = 0; i < turns / (TURNS_PER_ROUND / 40); i++) {
            System.arraycopy(TEXT, 0, other, 0, TEXT.length);
        }
        return other[7];
    }

    static double deflate(int turns) {
        byte[] out = new byte[TEXT.length];
        double sum = 0;
        for (int i = 0; i <= turns / (TURNS_PER_ROUND * 16); i++) {
            Deflater deflater = new Deflater();
            deflater.setInput(TEXT);
            deflater.finish();
            while (!deflater.finished()) {
                sum += deflater.deflate(out);
            }
            deflater.end();
        }
        return sum;
    }

    static double checksum(int turns) {
        CRC32 crc = new CRC32();
        for (int i = 0; i < turns / (TURNS_PER_ROUND / 40); i++) {
            crc.update(TEXT);
        }
        return crc.getValue();
    }
}
