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

/** What work says on the thread that does it, when another handed it over. */
class CarriedTest {
    private static final Map<String, String> GIVEN = Map.of("endpoint", "/cart");
    private static final String SAID = "[endpoint, /cart]";
    private static final String NOTHING = "[]";

    @BeforeAll
    static void load() {
        assertTrue(NativeLibrary.load(), "the library of this build is on the class path");
    }

    private static String said() {
        return Packed.unpack(Native.labelsOf((int) Scope.wordsHere()[0])).toString();
    }

    /** What one task of the executor says by itself. */
    private static String plain(ExecutorService executor) throws Exception {
        return executor.submit(CarriedTest::said).get(30, TimeUnit.SECONDS);
    }

    private static void giveAndAsk(ExecutorService executor) throws Exception {
        try {
            ExecutorService carrying = Spanprof.wrap(executor);
            try (Scope scope = Spanprof.tag(GIVEN)) {
                Callable<String> work = CarriedTest::said;
                assertEquals(SAID, carrying.submit(work).get(30, TimeUnit.SECONDS));
                assertEquals(SAID, carrying.invokeAny(List.of(work)));
                assertEquals(SAID, carrying.invokeAll(List.of(work, work)).get(1).get());
                AtomicReference<String> heard = new AtomicReference<>();
                carrying.submit(() -> heard.set(said())).get(30, TimeUnit.SECONDS);
                assertEquals(SAID, heard.get());
                assertEquals(NOTHING, plain(executor));
                assertEquals(SAID, said());
            }
            assertEquals(NOTHING, carrying.submit(CarriedTest::said).get(30, TimeUnit.SECONDS));
        } finally {
            executor.shutdown();
        }
        assertTrue(executor.awaitTermination(30, TimeUnit.SECONDS));
    }

    @Test
    void tasksOfAThreadPoolSayWhatTheirGiverSaid() throws Exception {
        giveAndAsk(Executors.newFixedThreadPool(1));
    }

    @Test
    void tasksOfAForkJoinPoolSayWhatTheirGiverSaid() throws Exception {
        giveAndAsk(new ForkJoinPool(1));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void tasksOnVirtualThreadsSayWhatTheirGiverSaid() throws Exception {
        // By name: the tests are compiled for Java 17.
        giveAndAsk((ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null));
    }

    @Test
    void stagesOfACompletableFutureSayWhatTheirGiverSaid() throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(2);
        try {
            Executor carrying = Spanprof.wrap((Executor) executor);
            CompletableFuture<String> first;
            CompletableFuture<String> whole;
            CompletableFuture<String> from = new CompletableFuture<>();
            try (Scope scope = Spanprof.tag(GIVEN)) {
                first = CompletableFuture.supplyAsync(CarriedTest::said, carrying).thenApplyAsync(text -> text + said(), carrying);
                whole = from.thenApplyAsync(Spanprof.wrapFunction(text -> text + said()), executor)
                        .thenCombineAsync(first, Spanprof.wrapBiFunction((left, right) -> left + right + said()), executor);
            }
            from.complete("from nowhere ");
            assertEquals(SAID + SAID, first.get(30, TimeUnit.SECONDS));
            assertEquals("from nowhere " + SAID + SAID + SAID + SAID, whole.get(30, TimeUnit.SECONDS));
        } finally {
            executor.shutdown();
        }
    }

    @Test
    void tasksOfASchedulerSayWhatWasSaidWhenTheyWereScheduled() throws Exception {
        ScheduledExecutorService executor = Executors.newScheduledThreadPool(1);
        try {
            ScheduledExecutorService carrying = Spanprof.wrap(executor);
            AtomicReference<String> heard = new AtomicReference<>();
            CountDownLatch thrice = new CountDownLatch(3);
            try (Scope scope = Spanprof.tag(GIVEN)) {
                assertEquals(SAID, carrying.schedule(CarriedTest::said, 1, TimeUnit.MILLISECONDS).get(30, TimeUnit.SECONDS));
                carrying.scheduleAtFixedRate(() -> {
                    heard.set(said());
                    thrice.countDown();
                }, 0, 1, TimeUnit.MILLISECONDS);
            }
            assertTrue(thrice.await(30, TimeUnit.SECONDS));
            assertEquals(SAID, heard.get());
        } finally {
            executor.shutdownNow();
        }
    }

    @Test
    void threadsOfAFactorySayWhatWasSaidWhereTheyWereAskedFor() throws Exception {
        AtomicReference<String> heard = new AtomicReference<>();
        ThreadFactory factory = Spanprof.wrapThreadFactory(Thread::new);
        Thread thread;
        try (Scope scope = Spanprof.tag(GIVEN)) {
            thread = factory.newThread(() -> heard.set(said()));
        }
        thread.start();
        thread.join(30_000);
        assertEquals(SAID, heard.get());
    }

    @Test
    void workThatFailsFailsAsItWouldAndWhatWasThereIsThereAgain() {
        IllegalStateException failure = new IllegalStateException("as it was");
        Runnable work;
        try (Scope scope = Spanprof.tag(GIVEN)) {
            work = Spanprof.wrap((Runnable) () -> {
                throw failure;
            });
        }
        try (Scope own = Spanprof.tag(Map.of("own", "1"))) {
            assertSame(failure, assertThrows(IllegalStateException.class, work::run));
            assertEquals("[own, 1]", said());
        }
        assertEquals(NOTHING, said());
    }

    @Test
    void tasksThatNeverRanAreGivenBackAsTheyWere() throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(1);
        CountDownLatch busy = new CountDownLatch(1);
        executor.execute(() -> {
            try {
                busy.await();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        });
        Runnable work = () -> { };
        ExecutorService carrying = Spanprof.wrap(executor);
        carrying.execute(work);
        assertEquals(List.of(work), carrying.shutdownNow());
        assertTrue(carrying.awaitTermination(30, TimeUnit.SECONDS));
    }
}
