package io.spanprof;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Frees the native memory of captures that became unreachable, when another capture ends. Without the thread of a {@code
 * java.lang.ref.Cleaner}, which would keep the class loader of a redeployed application.
 */
final class CapturedMemory extends PhantomReference<Object> {
    private static final Set<CapturedMemory> LIVE = ConcurrentHashMap.newKeySet();
    private static final ReferenceQueue<Object> UNREACHABLE = new ReferenceQueue<>();

    private final int number;

    private CapturedMemory(Object capture, int number) {
        super(capture, UNREACHABLE);
        this.number = number;
    }

    static void freeWith(Object capture, int number) {
        LIVE.add(new CapturedMemory(capture, number));
        for (Object freed = UNREACHABLE.poll(); freed != null; freed = UNREACHABLE.poll()) {
            LIVE.remove(freed);
            Native.freeCapture(((CapturedMemory) freed).number);
        }
    }
}
