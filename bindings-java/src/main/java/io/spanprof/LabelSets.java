package io.spanprof;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Label sets by the texts that they are made of, and by the two sets that they are merged of: small tables in front of the
 * library's, which a call takes many times as long to reach. What a number stands for never changes, so nothing in here
 * grows old. Texts are kept, of bounded length, and nothing else of the program's.
 */
final class LabelSets {
    private static final int MERGED = 1024;
    private static final int KNOWN = 512;
    /** Beyond so many characters texts are not kept. */
    private static final int MOST_CHARACTERS = 256;
    /** Three numbers of sets make a word: parent, child, result. */
    private static final int BITS = 21;

    private static final AtomicLongArray MERGES = new AtomicLongArray(MERGED);
    /** Races between threads lose an entry, no more: each is read whole or not at all. */
    private static final Known[] TEXTS = new Known[KNOWN];

    /** Keys and values in turn, and the set that they make. */
    private record Known(String[] texts, long set) {}

    private LabelSets() {}

    /** The set {@code parent} with the labels of {@code child} on top. */
    static long merged(long parent, long child) {
        if (parent == 0 || parent == child) {
            return child;
        }
        if (child == 0) {
            return parent;
        }
        long pair = parent << BITS | child;
        int place = place(Long.hashCode(pair), MERGED);
        long found = MERGES.getOpaque(place);
        if (found >>> BITS == pair) {
            return found & (1 << BITS) - 1;
        }
        long second = MERGES.getOpaque(place ^ 1);
        if (second >>> BITS == pair) {
            return second & (1 << BITS) - 1;
        }
        return mergedAnew(parent, child, place, found);
    }

    private static long mergedAnew(long parent, long child, int place, long before) {
        long[] words = {parent, 0, 0, 0, 0};
        boolean isDone = Native.merge(words, new long[] {child, 0, 0, 0, 0});
        long result = words[0];
        if (isDone && (parent | child | result) >>> BITS == 0) {
            MERGES.setOpaque(place ^ 1, before);
            MERGES.setOpaque(place, (parent << BITS | child) << BITS | result);
        }
        return result;
    }

    /** The set of so many texts, keys and values in turn; {@code hash} is over all of them. */
    static long of(String[] texts, int count, int hash) {
        int place = place(hash, KNOWN);
        Known found = TEXTS[place];
        if (found != null && isOf(found, texts, count)) {
            return found.set;
        }
        Known second = TEXTS[place ^ 1];
        if (second != null && isOf(second, texts, count)) {
            return second.set;
        }
        return ofAnew(texts, count, place, found);
    }

    private static boolean isOf(Known known, String[] texts, int count) {
        return Arrays.equals(known.texts, 0, known.texts.length, texts, 0, count);
    }

    private static long ofAnew(String[] texts, int count, int place, Known before) {
        String[] own = Arrays.copyOf(texts, count);
        long[] words = new long[ThreadScope.WORDS];
        boolean isWhole = Native.child(words, Packed.pack(Arrays.asList(own)));
        // What the library's limits cut may be cut otherwise another time.
        if (isWhole && Arrays.stream(own).mapToInt(String::length).sum() <= MOST_CHARACTERS) {
            TEXTS[place ^ 1] = before;
            TEXTS[place] = new Known(own, words[0]);
        }
        return words[0];
    }

    /** Of two places side by side the first, where the newest entry is. */
    private static int place(int hash, int places) {
        int mixed = hash * 0x9E3779B9;
        return (mixed >>> 16) & (places - 2);
    }
}
