package io.spanprof;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Caches of label set ids, by the strings of a set and by the two sets of a merge. They avoid JNI calls, which take many
 * times as long as a lookup. The meaning of an id never changes, so entries never expire. They keep strings of bounded
 * length and no other objects of the program.
 */
final class LabelSets {
    private static final int MERGE_ENTRIES = 1024;
    private static final int STRING_ENTRIES = 512;
    /** Sets with more characters are not cached. */
    private static final int MAX_CHARACTERS = 256;
    /** Three set ids per word: parent, child, result. */
    private static final int BITS = 21;
    /** The bits of a set id in a word that also contains the number of a capture. */
    private static final long SET = 0xFFFF_FFFFL;

    private static final AtomicLongArray MERGES = new AtomicLongArray(MERGE_ENTRIES);
    /** A race between threads may lose an entry; entries are immutable. */
    private static final CachedSet[] STRING_SETS = new CachedSet[STRING_ENTRIES];

    /** Alternating keys and values, and their label set. */
    private static final class CachedSet {
        private final String[] texts;
        private final long set;

        private CachedSet(String[] texts, long set) {
            this.texts = texts;
            this.set = set;
        }
    }

    private LabelSets() {}

    /** The label set {@code parent} with the labels of {@code child} added. */
    static long merged(long parent, long child) {
        if ((parent | child) >>> Integer.SIZE != 0) {
            return mergedInCapture(parent, child);
        }
        if (parent == 0 || parent == child) {
            return child;
        }
        if (child == 0) {
            return parent;
        }
        long pair = parent << BITS | child;
        int slot = slot(Long.hashCode(pair), MERGE_ENTRIES);
        long first = MERGES.get(slot);
        if (first >>> BITS == pair) {
            return first & (1 << BITS) - 1;
        }
        long second = MERGES.get(slot ^ 1);
        if (second >>> BITS == pair) {
            return second & (1 << BITS) - 1;
        }
        return mergeUncached(parent, child, slot, first);
    }

    /** As {@link #merged}, with the number of a capture in the upper half; that of the child wins. */
    private static long mergedInCapture(long parent, long child) {
        long capture = child >>> Integer.SIZE != 0 ? child >>> Integer.SIZE : parent >>> Integer.SIZE;
        return capture << Integer.SIZE | merged(parent & SET, child & SET);
    }

    private static long mergeUncached(long parent, long child, int slot, long before) {
        long[] words = {parent, 0, 0, 0, 0};
        boolean isMerged = Native.merge(words, new long[] {child, 0, 0, 0, 0});
        long result = words[0];
        if (isMerged && (parent | child | result) >>> BITS == 0) {
            MERGES.lazySet(slot ^ 1, before);
            MERGES.lazySet(slot, (parent << BITS | child) << BITS | result);
        }
        return result;
    }

    /** The set of {@code count} alternating keys and values; {@code hash} covers all of them. */
    static long of(String[] texts, int count, int hash) {
        int slot = slot(hash, STRING_ENTRIES);
        CachedSet first = STRING_SETS[slot];
        if (first != null && isOf(first, texts, count)) {
            return first.set;
        }
        CachedSet second = STRING_SETS[slot ^ 1];
        if (second != null && isOf(second, texts, count)) {
            return second.set;
        }
        return setUncached(texts, count, slot, first);
    }

    private static boolean isOf(CachedSet cached, String[] texts, int count) {
        if (cached.texts.length != count) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            if (!cached.texts[i].equals(texts[i])) {
                return false;
            }
        }
        return true;
    }

    private static long setUncached(String[] texts, int count, int slot, CachedSet before) {
        String[] copy = Arrays.copyOf(texts, count);
        long[] words = new long[ThreadScope.WORDS];
        boolean isComplete = Native.child(words, Packed.pack(Arrays.asList(copy)));
        // Labels cut by a limit may be cut differently another time.
        if (isComplete && Arrays.stream(copy).mapToInt(String::length).sum() <= MAX_CHARACTERS) {
            STRING_SETS[slot ^ 1] = before;
            STRING_SETS[slot] = new CachedSet(copy, words[0]);
        }
        return words[0];
    }

    /** The first of two adjacent slots; it holds the newest entry. */
    private static int slot(int hash, int slots) {
        int mixed = hash * 0x9E3779B9;
        return (mixed >>> 16) & (slots - 2);
    }
}
