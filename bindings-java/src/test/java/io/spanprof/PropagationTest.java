package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;

/** The context of work that another thread submitted. */
class PropagationTest {
    private static final Map<String, String> LABELS = Map.of("endpoint", "/cart");
    private static final String EXPECTED = "[endpoint, /cart]";
    private static final String EMPTY = "[]";

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static String labels() {
        return Packed.unpack(Native.labelsOf((int) Scope.currentWords()[0])).toString();
    }

    /** The labels of a task of the unwrapped executor. */
    private static String plain(ExecutorService executor) throws Exception {
        return executor.submit(PropagationTest::labels).get(30, TimeUnit.SECONDS);
    }

    private static void assertTasksHaveTheLabelsOfTheirSubmitter(ExecutorService executor) throws Exception {
        try {
            ExecutorService propagating = Spanprof.wrap(executor);
            try (Scope scope = Spanprof.tag(LABELS)) {
                Callable<String> work = PropagationTest::labels;
                assertEquals(EXPECTED, propagating.submit(work).get(30, TimeUnit.SECONDS));
                assertEquals(EXPECTED, propagating.invokeAny(List.of(work)));
                assertEquals(EXPECTED, propagating.invokeAll(List.of(work, work)).get(1).get());
                AtomicReference<String> observed = new AtomicReference<>();
                propagating.submit(() -> observed.set(labels())).get(30, TimeUnit.SECONDS);
                assertEquals(EXPECTED, observed.get());
                assertEquals(EMPTY, plain(executor));
                assertEquals(EXPECTED, labels());
            }
            assertEquals(EMPTY, propagating.submit(PropagationTest::labels).get(30, TimeUnit.SECONDS));
        } finally {
            executor.shutdown();
        }
        assertTrue(executor.awaitTermination(30, TimeUnit.SECONDS));
    }

    @Test
    void tasksOfAThreadPoolHaveTheLabelsOfTheirSubmitter() throws Exception {
        assertTasksHaveTheLabelsOfTheirSubmitter(Executors.newFixedThreadPool(1));
    }

    @Test
    void tasksOfAForkJoinPoolHaveTheLabelsOfTheirSubmitter() throws Exception {
        assertTasksHaveTheLabelsOfTheirSubmitter(new ForkJoinPool(1));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void tasksOnVirtualThreadsHaveTheLabelsOfTheirSubmitter() throws Exception {
        // By reflection: the tests are compiled for Java 17.
        assertTasksHaveTheLabelsOfTheirSubmitter(
                (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null));
    }

    @Test
    void stagesOfACompletableFutureHaveTheLabelsOfTheirSubmitter() throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(2);
        try {
            Executor propagating = Spanprof.wrap((Executor) executor);
            CompletableFuture<String> first;
            CompletableFuture<String> whole;
            CompletableFuture<String> from = new CompletableFuture<>();
            try (Scope scope = Spanprof.tag(LABELS)) {
                first = CompletableFuture.supplyAsync(PropagationTest::labels, propagating)
                        .thenApplyAsync(text -> text + labels(), propagating);
                whole = from.thenApplyAsync(Spanprof.wrapFunction(text -> text + labels()), executor)
                        .thenCombineAsync(first, Spanprof.wrapBiFunction((left, right) -> left + right + labels()), executor);
            }
            from.complete("from nowhere ");
            assertEquals(EXPECTED + EXPECTED, first.get(30, TimeUnit.SECONDS));
            assertEquals("from nowhere " + EXPECTED + EXPECTED + EXPECTED + EXPECTED, whole.get(30, TimeUnit.SECONDS));
        } finally {
            executor.shutdown();
        }
    }

    @Test
    void tasksOfASchedulerHaveTheLabelsOfTheThreadThatScheduledThem() throws Exception {
        ScheduledExecutorService executor = Executors.newScheduledThreadPool(1);
        try {
            ScheduledExecutorService propagating = Spanprof.wrap(executor);
            AtomicReference<String> observed = new AtomicReference<>();
            CountDownLatch thrice = new CountDownLatch(3);
            try (Scope scope = Spanprof.tag(LABELS)) {
                assertEquals(EXPECTED, propagating.schedule(PropagationTest::labels, 1, TimeUnit.MILLISECONDS).get(30, TimeUnit.SECONDS));
                propagating.scheduleAtFixedRate(() -> {
                    observed.set(labels());
                    thrice.countDown();
                }, 0, 1, TimeUnit.MILLISECONDS);
            }
            assertTrue(thrice.await(30, TimeUnit.SECONDS));
            assertEquals(EXPECTED, observed.get());
        } finally {
            executor.shutdownNow();
        }
    }

    @Test
    void threadsOfAFactoryHaveTheLabelsOfTheThreadThatRequestedThem() throws Exception {
        AtomicReference<String> observed = new AtomicReference<>();
        ThreadFactory factory = Spanprof.wrapThreadFactory(Thread::new);
        Thread thread;
        try (Scope scope = Spanprof.tag(LABELS)) {
            thread = factory.newThread(() -> observed.set(labels()));
        }
        thread.start();
        thread.join(30_000);
        assertEquals(EXPECTED, observed.get());
    }

    @Test
    void workThrowsItsOwnExceptionAndThePreviousLabelsAreRestored() {
        IllegalStateException failure = new IllegalStateException("as it was");
        Runnable work;
        try (Scope scope = Spanprof.tag(LABELS)) {
            work = Spanprof.wrap((Runnable) () -> {
                throw failure;
            });
        }
        try (Scope own = Spanprof.tag(Map.of("own", "1"))) {
            assertSame(failure, assertThrows(IllegalStateException.class, work::run));
            assertEquals("[own, 1]", labels());
        }
        assertEquals(EMPTY, labels());
    }

    @Test
    void tasksThatNeverRanAreReturnedUnwrapped() throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(1);
        CountDownLatch busy = new CountDownLatch(1);
        executor.submit(() -> {
            busy.await();
            return null;
        });
        Runnable work = () -> { };
        ExecutorService propagating = Spanprof.wrap(executor);
        propagating.execute(work);
        assertEquals(List.of(work), propagating.shutdownNow());
        assertTrue(propagating.awaitTermination(30, TimeUnit.SECONDS));
    }
}
