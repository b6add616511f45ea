package io.spanprof;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;

/**
 * A thread's context in words that the profiler's signal handler reads on the same thread, or on its carrier. The first
 * word is cleared first and written last: its lowest bit is 0 if there is no context, and its other bits identify the
 * innermost open scope. Handlers do not read the entries of open scopes behind the context.
 *
 * <p>A thread references the words as a buffer of the JDK. Long-lived threads, such as a server's after an application is
 * undeployed, keep no reference to the application's classes.
 */
final class ThreadScope {
    /** Label set, trace id in two halves, span id, local root span id. */
    static final int WORDS = 5;

    private static final ThreadLocal<LongBuffer> OF_THREAD = new ThreadLocal<>();
    private static final int ENTRIES = 1 + WORDS;
    private static final int MAX_ENTRIES = 8;
    /**
     * Index after the words of a virtual thread: 0 while its mounts are not tracked, so that handlers cannot find the
     * words.
     */
    private static final int IS_TRACKED = ENTRIES + MAX_ENTRIES;

    /** Of the first word: whether there is a context. The bit above is used by the library. */
    static final long HAS_CONTEXT = 1;
    /** Of the first word: the number of open scopes with an entry, four bits. */
    private static final long ONE_ENTRY = 1L << 2;
    private static final int ENTRY_BITS = 6;
    /** Of the first word: the number of those without an entry, since all entries are in use. */
    private static final long ONE_WITHOUT_ENTRY = 1L << ENTRY_BITS;
    private static final long WITHOUT_ENTRY = (1L << 33) - ONE_WITHOUT_ENTRY;
    /** Of the first word: how many scopes have ended in another than the reverse order. */
    private static final long ONE_CHANGE = 1L << 39;

    /**
     * Of an entry: the scope's own label set; of the first scope, which is listed when one opens inside it, the label set
     * inside it; of a scope that has ended, the label set around it.
     */
    private static final long SET = 0xFFFF_FFFFL;
    /** Of an entry: the first word in the scope, rotated so that the number of entries is at the top. */
    private static final long IDENTITY = Long.rotateRight(-ONE_CHANGE | 0xf * ONE_ENTRY, ENTRY_BITS);
    /** Of an entry: the scope has ended, after those around it were opened and before those inside it. */
    private static final long HAS_ENDED = 1L << 32;
    /** Of an entry that has ended: the scope had a span link. */
    private static final long HAD_LINK = 1L << 58;
    /** Of an entry: the scope's context replaces the one around it. */
    static final long REPLACES = 1L << 59;

    private ThreadScope() {}

    /** The calling thread's words; null if it has none yet. */
    static LongBuffer existing() {
        return OF_THREAD.get();
    }

    /** New words for the calling thread; null without the library, or if no row is free. */
    static LongBuffer allocate() {
        if (!NativeLibrary.isReady()) {
            return null;
        }
        boolean isVirtual = VirtualThreads.isVirtual(Thread.currentThread());
        ByteBuffer bytes = isVirtual ? Native.virtualBuffer() : Native.threadBuffer();
        if (bytes == null) {
            return null;
        }
        LongBuffer buffer = bytes.order(ByteOrder.nativeOrder()).asLongBuffer();
        OF_THREAD.set(buffer);
        return buffer;
    }

    /** Whether handlers find the words: they may be those of a virtual thread whose mounts are not tracked. */
    static boolean isTracked(LongBuffer buffer) {
        return buffer.capacity() == IS_TRACKED || buffer.get(IS_TRACKED) != 0;
    }

    static long state(LongBuffer buffer) {
        return buffer.get(0);
    }

    /** Whether the thread has a context. */
    static boolean isOpen(LongBuffer buffer) {
        return (state(buffer) & HAS_CONTEXT) != 0;
    }

    static long word(LongBuffer buffer, int index) {
        return buffer.get(1 + index);
    }

    static long[] words(LongBuffer buffer) {
        long[] words = new long[WORDS];
        if (isOpen(buffer)) {
            for (int i = 0; i < WORDS; i++) {
                words[i] = word(buffer, i);
            }
        }
        return words;
    }

    private static int count(long state) {
        return (int) state >>> 2 & 0xf;
    }

    /** Whether there is neither a context nor an open scope. */
    static boolean isIdle(long state) {
        return (state & (HAS_CONTEXT | 0xf * ONE_ENTRY)) == 0;
    }

    /** The first word in the first scope; it was {@code outer} before. */
    static long inFirst(long outer, boolean hasContext) {
        return outer + (hasContext ? ONE_ENTRY | HAS_CONTEXT : ONE_ENTRY);
    }

    /**
     * The first word, without {@link #HAS_CONTEXT}, in a scope inside others. Writes its entry.
     *
     * @param around the label set before it
     * @param labelSet its own
     * @param kind 0 or {@link #REPLACES}
     */
    static long inside(LongBuffer buffer, long outer, long around, long labelSet, long kind) {
        int count = count(outer);
        if (count == 1) {
            buffer.put(ENTRIES, around & SET);
        }
        if (count == MAX_ENTRIES) {
            return (outer & ~HAS_CONTEXT) + ONE_WITHOUT_ENTRY;
        }
        long number = (outer & ~HAS_CONTEXT) + ONE_ENTRY;
        buffer.put(ENTRIES + count, Long.rotateRight(number, ENTRY_BITS) | kind | labelSet & SET);
        return number;
    }

    /** Whether the first word is as it was in a scope: no scope is open inside it, and none has ended around it. */
    static boolean isInnermost(LongBuffer buffer, long state) {
        StoreFence.call();
        return state(buffer) == state;
    }

    static void write(LongBuffer buffer, long state, long labelSet, long traceHigh, long traceLow, long span, long root) {
        buffer.put(0, 0);
        // The handler runs on this thread: only compiler reordering must be prevented.
        StoreFence.call();
        begin(buffer, state, labelSet, traceHigh, traceLow, span, root);
    }

    /** As {@link #write}, for a thread without context. */
    static void begin(LongBuffer buffer, long state, long labelSet, long traceHigh, long traceLow, long span, long root) {
        buffer.put(1, labelSet);
        buffer.put(2, traceHigh);
        buffer.put(3, traceLow);
        buffer.put(4, span);
        buffer.put(5, root);
        StoreFence.call();
        putState(buffer, state);
    }

    /** As {@link #write}, for words that may be empty. */
    static void replace(LongBuffer buffer, long state, long labelSet, long traceHigh, long traceLow, long span, long root) {
        long empty = state & ~HAS_CONTEXT;
        boolean isEmpty = (labelSet | traceHigh | traceLow | span | root) == 0;
        write(buffer, isEmpty ? empty : empty | HAS_CONTEXT, labelSet, traceHigh, traceLow, span, root);
    }

    static void replace(LongBuffer buffer, long state, long[] words) {
        replace(buffer, state, words[0], words[1], words[2], words[3], words[4]);
    }

    static void putState(LongBuffer buffer, long state) {
        buffer.put(0, state);
        StoreFence.call();
    }

    /**
     * Ends a scope for which {@link #isInnermost} is false: takes its own labels and link away.
     *
     * @param inside the first word in it
     * @param outer the other words before it
     * @param own its labels
     * @param endsInner whether the scopes inside it end too, as they do if one of them has no entry
     */
    static void end(LongBuffer buffer, long inside, long[] outer, Labels own, boolean endsInner) {
        long number = inside & ~HAS_CONTEXT;
        long state = state(buffer);
        int count = count(state);
        boolean hasEntry = (number & WITHOUT_ENTRY) == 0;
        int index = hasEntry ? indexOf(buffer, number, count) : count;
        if (index < 0 || (state & WITHOUT_ENTRY) < (number & WITHOUT_ENTRY)) {
            // It ended with a scope around it.
            return;
        }
        // Whether a scope around it has ended since it opened, and had a link.
        boolean isStale = false;
        boolean hadLink = false;
        long around = 0;
        boolean mayBeStale = hasEntry && ((state ^ number) & -ONE_CHANGE) != 0;
        for (int i = 0; i < index && mayBeStale; i++) {
            long entry = buffer.get(ENTRIES + i);
            boolean replaces = (entry & REPLACES) != 0;
            isStale = !replaces && (isStale || (entry & HAS_ENDED) != 0);
            hadLink = !replaces && (hadLink || (entry & HAD_LINK) != 0);
            around = setInside(around, entry);
        }
        long labelSet = isStale ? around : outer[0] & SET;
        long[] words = words(buffer);
        boolean changesLink = own.areLinkOf(words);
        boolean isInnermost = endsInner || index >= count - 1 || (state & WITHOUT_ENTRY) != 0;
        long withoutEntry = hasEntry ? 0 : (number & WITHOUT_ENTRY) - ONE_WITHOUT_ENTRY;
        int left = index;
        if (isInnermost) {
            // The current link stays if that at its begin may be of an ended scope.
            changesLink |= !hadLink || index != count - 1 || (buffer.get(ENTRIES + index) & REPLACES) != 0;
            while (withoutEntry == 0 && left > 0 && (buffer.get(ENTRIES + left - 1) & HAS_ENDED) != 0) {
                left--;
            }
        } else {
            left = putEnded(buffer, left, own.hasLink() ? labelSet | HAD_LINK : labelSet);
            for (int i = index + 1; i < count; i++) {
                long entry = buffer.get(ENTRIES + i);
                if ((entry & HAS_ENDED) != 0) {
                    left = putEnded(buffer, left, labelSet | entry & HAD_LINK);
                } else {
                    buffer.put(ENTRIES + left++, entry);
                    labelSet = setInside(labelSet, entry);
                    changesLink &= (entry & REPLACES) == 0;
                }
            }
        }
        for (int i = 1; i < WORDS && changesLink; i++) {
            words[i] = hadLink ? 0 : outer[i];
        }
        words[0] = (isInnermost ? outer : words)[0] & ~SET | labelSet;
        long changes = (state & -ONE_CHANGE) + ONE_CHANGE;
        replace(buffer, changes | left * ONE_ENTRY | withoutEntry, words);
    }

    private static int indexOf(LongBuffer buffer, long number, int count) {
        if (count(number) == 1) {
            return count == 0 ? -1 : 0;
        }
        int index = count - 1;
        while (index >= 0 && (buffer.get(ENTRIES + index) & IDENTITY) != Long.rotateRight(number, ENTRY_BITS)) {
            index--;
        }
        return index;
    }

    /** Puts an ended scope behind {@code count} entries, into the last one if that has ended; returns their number. */
    private static int putEnded(LongBuffer buffer, int count, long entry) {
        long last = count == 0 ? 0 : buffer.get(ENTRIES + count - 1) & (HAS_ENDED | HAD_LINK);
        int index = last == 0 ? count : count - 1;
        buffer.put(ENTRIES + index, entry | last | HAS_ENDED);
        return index + 1;
    }

    /** The label set inside a scope. */
    private static long setInside(long outer, long entry) {
        return (entry & (HAS_ENDED | REPLACES)) != 0 ? entry & SET : LabelSets.merged(outer, entry & SET);
    }
}
