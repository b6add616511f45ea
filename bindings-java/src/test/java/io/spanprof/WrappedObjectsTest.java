package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.PriorityBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** What a program can observe of its objects that the package wraps. */
class WrappedObjectsTest {
    /** A task as programs write them: with an order, and sent to other processes. */
    record Job(int priority, List<Integer> ran) implements Runnable, Callable<Integer>, Comparable<Job>, Serializable {
        @Override
        public void run() {
            ran.add(priority);
        }

        @Override
        public Integer call() {
            return priority;
        }

        @Override
        public int compareTo(Job other) {
            return Integer.compare(priority, other.priority);
        }
    }

    private static final Job JOB = new Job(1, List.of());

    /** Each object with its wrapper, and the interfaces that programs test for. */
    static Stream<Arguments> wrapped() {
        ScheduledExecutorService scheduler = Executors.newScheduledThreadPool(1);
        ExecutorService pool = new ForkJoinPool(1);
        return Stream.of(
                Arguments.of(JOB, Spanprof.wrap((Runnable) JOB), List.of(Runnable.class, Comparable.class, Serializable.class)),
                Arguments.of(JOB, Spanprof.wrap((Callable<Integer>) JOB), List.of(Callable.class, Serializable.class)),
                Arguments.of(pool, Spanprof.wrap((Executor) pool), List.of(ExecutorService.class)),
                Arguments.of(pool, Spanprof.wrap(pool), List.of(ExecutorService.class)),
                Arguments.of(scheduler, Spanprof.wrap((Executor) scheduler), List.of(ScheduledExecutorService.class)),
                Arguments.of(scheduler, Spanprof.wrap((ExecutorService) scheduler), List.of(ScheduledExecutorService.class)));
    }

    @ParameterizedTest
    @MethodSource("wrapped")
    void aWrapperHasTheInterfacesAndTheTextOfItsObject(Object object, Object wrapper, List<Class<?>> interfaces) {
        assertNotSame(object, wrapper);
        assertEquals(object.toString(), wrapper.toString());
        interfaces.forEach(type -> assertTrue(type.isInstance(wrapper), type::getName));
    }

    @Test
    void aTaskIsSerializedWithoutItsWrapperAndEqualTasksStayEqual() throws Exception {
        for (Object task : List.of(Spanprof.wrap((Runnable) JOB), Spanprof.wrap((Callable<Integer>) JOB))) {
            ByteArrayOutputStream sent = new ByteArrayOutputStream();
            new ObjectOutputStream(sent).writeObject(task);
            assertEquals(JOB, new ObjectInputStream(new ByteArrayInputStream(sent.toByteArray())).readObject());
        }
        assertEquals(Spanprof.wrap((Runnable) JOB), Spanprof.wrap((Runnable) new Job(1, List.of())));
        assertEquals(JOB.hashCode(), Spanprof.wrap((Runnable) JOB).hashCode());
    }

    @Test
    void aPoolOrdersTasksThatAreComparable() throws Exception {
        ThreadPoolExecutor executor = new ThreadPoolExecutor(1, 1, 0, TimeUnit.SECONDS, new PriorityBlockingQueue<>());
        ExecutorService propagating = Spanprof.wrap(executor);
        List<Integer> ran = new java.util.concurrent.CopyOnWriteArrayList<>();
        CountDownLatch busy = new CountDownLatch(1);
        executor.execute(() -> {
            try {
                busy.await();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        });
        List.of(3, 1, 2).forEach(priority -> propagating.execute(new Job(priority, ran)));
        busy.countDown();
        propagating.shutdown();
        assertTrue(propagating.awaitTermination(30, TimeUnit.SECONDS));
        assertEquals(List.of(1, 2, 3), ran);
    }
}
