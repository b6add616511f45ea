package io.spanprof;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;

/** Stores before a call are not reordered with stores after it. */
final class StoreFence {
    private StoreFence() {}

    static void call() {
        if (LaterApi.EXISTS) {
            LaterApi.storeStoreFence();
        } else {
            OfJava8.call();
        }
    }

    private static final class OfJava8 {
        /** A security policy may deny it to the program, whose thread comes here first. */
        private static final MethodHandle FENCE = Privileged.call(OfJava8::find);

        private OfJava8() {}

        static void call() {
            try {
                FENCE.invokeExact();
            } catch (Throwable impossible) {
                // Unsafe.storeFence throws nothing.
                return;
            }
        }

        private static MethodHandle find() {
            try {
                Class<?> type = Class.forName("sun.misc.Unsafe");
                Field instance = type.getDeclaredField("theUnsafe");
                instance.setAccessible(true);
                MethodType withoutValue = MethodType.methodType(void.class);
                return MethodHandles.lookup().findVirtual(type, "storeFence", withoutValue).bindTo(instance.get(null));
            } catch (ReflectiveOperationException notHotSpot) {
                throw new IllegalStateException(notHotSpot);
            }
        }
    }
}
