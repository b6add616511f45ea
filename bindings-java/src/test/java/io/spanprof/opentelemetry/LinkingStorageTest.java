package io.spanprof.opentelemetry;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextKey;
import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.Scope;
import io.spanprof.Labels;
import io.spanprof.SpanLink;
import org.junit.jupiter.api.Test;

/** The wrapper of a storage that throws. No profiler runs. */
class LinkingStorageTest {
    private static final Context ROOT = Context.root().with(ContextKey.named("root"), "of the storage");

    private static final class Failing implements ContextStorage {
        @Override
        public Scope attach(Context context) {
            return () -> {
                throw new IllegalStateException("closed in another order");
            };
        }

        @Override
        public Context current() {
            return Context.root();
        }

        @Override
        public Context root() {
            return ROOT;
        }
    }

    @Test
    void theRootOfTheWrappedStorageStays() {
        assertSame(ROOT, new LinkingStorage(new Failing()).root());
    }

    @Test
    void aSpanWhoseCloseThrowsIsNoLongerActive() {
        // The first use of labels loads the library.
        Labels.of("a", "1");
        SpanContext span = SpanContext.create("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7",
                TraceFlags.getSampled(), TraceState.getDefault());
        Scope scope = new LinkingStorage(new Failing()).attach(Span.wrap(span).storeInContext(Context.root()));
        assertTrue(SpanLink.isActive());
        assertThrows(IllegalStateException.class, scope::close);
        assertFalse(SpanLink.isActive());
    }
}
