package io.spanprof;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * Ids in hex, as their bytes lie in memory: sixteen digits a word, eight digits at a time. Which texts are ids is the
 * library's rule.
 */
final class Hex {
    static final int TRACE_DIGITS = 32;
    static final int SPAN_DIGITS = 16;

    private static final boolean IS_LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
    private static final VarHandle EIGHT = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    /** One bit of each of eight bytes. */
    private static final long ONES = 0x0101010101010101L;
    private static final long HIGH_BITS = 0x80 * ONES;

    private Hex() {}

    /** A letter beyond a byte becomes one that is no digit. */
    static byte[] letters(CharSequence text) {
        return text.toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    /** Whether they are so many digits, a multiple of eight, and not all of them zero. */
    static boolean isId(byte[] letters, int digits) {
        if (letters.length != digits) {
            return false;
        }
        long different = 0;
        for (int i = 0; i < digits; i += 8) {
            long eight = (long) EIGHT.get(letters, i);
            if (!areDigits(eight)) {
                return false;
            }
            different |= eight ^ '0' * ONES;
        }
        return different != 0;
    }

    /** The word of the sixteen digits that begin at a place. */
    static long word(byte[] letters, int from) {
        long bytes = bytes((long) EIGHT.get(letters, from)) | bytes((long) EIGHT.get(letters, from + 8)) << 32;
        return IS_LITTLE ? bytes : Long.reverseBytes(bytes);
    }

    /** A number as its bytes lie in memory, the first digits first. */
    static long inMemory(long number) {
        return IS_LITTLE ? Long.reverseBytes(number) : number;
    }

    /** Each of eight letters is compared with the ends of both ranges: the high bit of its byte stays where it is no less. */
    private static boolean areDigits(long letters) {
        long small = letters | 0x20 * ONES;
        long isNumber = ((letters | HIGH_BITS) - '0' * ONES) & (('9' * ONES | HIGH_BITS) - letters);
        long isLetter = ((small | HIGH_BITS) - 'a' * ONES) & (('f' * ONES | HIGH_BITS) - small);
        return (letters & HIGH_BITS) == 0 && ((isNumber | isLetter) & HIGH_BITS) == HIGH_BITS;
    }

    /** Four bytes out of eight digits, the first in the lowest place. */
    private static long bytes(long letters) {
        long digits = (letters & 0x0f * ONES) + 9 * (letters >>> 6 & ONES);
        long pairs = (digits << 4 | digits >>> 8) & 0x00ff00ff00ff00ffL;
        long fours = (pairs | pairs >>> 8) & 0x0000ffff0000ffffL;
        return (fours | fours >>> 16) & 0xffffffffL;
    }
}
