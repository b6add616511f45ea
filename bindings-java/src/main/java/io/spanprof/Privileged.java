package io.spanprof;

import java.security.AccessController;
import java.security.PrivilegedAction;
import java.util.function.Supplier;

/**
 * Calls with the permissions of the JAR, which a security policy may have granted to it and not to the program (before Java
 * 24). A thread that is created in such a call does not keep the protection domains of the program's code, and with them its
 * class loaders.
 */
final class Privileged {
    private static final boolean HAS_PERMISSIONS = LaterApi.feature() < 24;

    private Privileged() {}

    static <T> T call(Supplier<T> work) {
        return HAS_PERMISSIONS ? AccessControl.call(work) : work.get();
    }

    /** A class of its own: later Java versions may lack the JDK's class. */
    @SuppressWarnings("removal")
    private static final class AccessControl {
        private AccessControl() {}

        static <T> T call(Supplier<T> work) {
            // A method reference would initialize the VM's bootstrap methods, which delays the first start.
            return AccessController.doPrivileged(new PrivilegedAction<T>() {
                @Override
                public T run() {
                    return work.get();
                }
            });
        }
    }
}
