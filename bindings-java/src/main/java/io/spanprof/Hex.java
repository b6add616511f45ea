package io.spanprof;

import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * Converts hex ids into words in memory byte order: sixteen digits per word, eight digits at a time. The native library
 * decides which strings are ids.
 */
final class Hex {
    static final int TRACE_DIGITS = 32;
    static final int SPAN_DIGITS = 16;

    private static final boolean IS_LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
    /** One bit in each of eight bytes. */
    private static final long ONES = 0x0101010101010101L;
    private static final long HIGH_BITS = 0x80 * ONES;

    private Hex() {}

    /** Characters above 255 become {@code ?}, which is not a digit. */
    static byte[] bytesOf(CharSequence text) {
        return text.toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    /** Whether these are exactly {@code count} hex digits, a multiple of eight, and not all zero. */
    static boolean isId(byte[] digits, int count) {
        if (digits.length != count) {
            return false;
        }
        long nonZero = 0;
        for (int i = 0; i < count; i += 8) {
            long eight = LaterApi.littleEndianLong(digits, i);
            if (!areDigits(eight)) {
                return false;
            }
            nonZero |= eight ^ '0' * ONES;
        }
        return nonZero != 0;
    }

    /** The word of the sixteen digits from an index on. */
    static long word(byte[] digits, int from) {
        long bytes = bytes(LaterApi.littleEndianLong(digits, from)) | bytes(LaterApi.littleEndianLong(digits, from + 8)) << 32;
        return IS_LITTLE ? bytes : Long.reverseBytes(bytes);
    }

    /**
     * Compares each of eight bytes with both ends of the digit ranges; the high bit of a byte stays set if it is in range.
     */
    private static boolean areDigits(long digits) {
        long lowerCase = digits | 0x20 * ONES;
        long isNumber = ((digits | HIGH_BITS) - '0' * ONES) & (('9' * ONES | HIGH_BITS) - digits);
        long isLetter = ((lowerCase | HIGH_BITS) - 'a' * ONES) & (('f' * ONES | HIGH_BITS) - lowerCase);
        return (digits & HIGH_BITS) == 0 && ((isNumber | isLetter) & HIGH_BITS) == HIGH_BITS;
    }

    /** Converts eight digits into four bytes, the first in the lowest position. */
    private static long bytes(long ascii) {
        long digits = (ascii & 0x0f * ONES) + 9 * (ascii >>> 6 & ONES);
        long pairs = (digits << 4 | digits >>> 8) & 0x00ff00ff00ff00ffL;
        long fours = (pairs | pairs >>> 8) & 0x0000ffff0000ffffL;
        return (fours | fours >>> 16) & 0xffffffffL;
    }
}
