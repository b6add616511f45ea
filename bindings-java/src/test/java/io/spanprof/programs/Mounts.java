package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** A virtual thread whose scope is open before the profiler starts, while it runs and after it stops. */
public final class Mounts {
    private static final String MOUNTS_FOLLOWED = "runtime.java.mounts_followed";
    private static double sum;

    private Mounts() {}

    /** By reflection: the tests are compiled for Java 17. */
    private static Thread virtual(Runnable work) throws ReflectiveOperationException {
        return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work);
    }

    /** Unmounts and mounts each time. */
    private static void naps(int times) {
        try {
            for (int i = 0; i < times; i++) {
                Thread.sleep(1);
            }
        } catch (InterruptedException unexpected) {
            throw new IllegalStateException(unexpected);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException unexpected) {
            throw new IllegalStateException(unexpected);
        }
    }

    static void works() {
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < 2_000_000; i++) {
                sum += Math.sqrt(i + sum);
            }
            naps(1);
        }
    }

    private static long mountsFollowed() {
        return (Long) Spanprof.stats().get(MOUNTS_FOLLOWED);
    }

    public static void main(String[] args) throws Exception {
        SpanprofConfig settings =
                SpanprofConfig.builder().serviceName("mounts").sampleRate(250).fileDirectory(args[0]).build();
        virtual(() -> Spanprof.tagWrapper(Map.of("job", "brief"), () -> naps(50))).join();

        CountDownLatch[] reached = new CountDownLatch[3];
        CountDownLatch[] released = new CountDownLatch[3];
        for (int i = 0; i < reached.length; i++) {
            reached[i] = new CountDownLatch(1);
            released[i] = new CountDownLatch(1);
        }
        Thread stays = virtual(() -> Spanprof.tagWrapper(Map.of("job", "stays"), () -> {
            reached[0].countDown();
            await(released[0]);
            works();
            reached[1].countDown();
            await(released[1]);
            naps(50);
            reached[2].countDown();
            await(released[2]);
        }));
        reached[0].await();
        Spanprof.start(settings);
        System.out.println("before_start " + mountsFollowed());
        System.out.println("labelled " + Spanprof.stats().get("runtime.java.virtual_threads_labelled"));
        released[0].countDown();
        reached[1].await();
        long before = mountsFollowed();
        System.out.println("while_running " + before);
        Spanprof.stop();
        released[1].countDown();
        reached[2].await();
        Spanprof.start(settings);
        System.out.println("while_stopped " + (mountsFollowed() - before));
        released[2].countDown();
        stays.join();
        Spanprof.stop();
    }
}
