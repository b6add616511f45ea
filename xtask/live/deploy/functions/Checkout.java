package shop;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Map;

/** A function of Lambda: CPU time in {@code lambda_work}, then a wait. Responds with the CPU time that it used, its clock and its thread. */
public final class Checkout implements RequestHandler<Map<String, Double>, Map<String, Object>> {
    @Override
    public Map<String, Object> handleRequest(Map<String, Double> event, Context context) {
        double used = lambda_work(event.get("work"));
        try {
            Thread.sleep((long) (event.get("wait") * 1000));
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        double clock = System.nanoTime() / 1e9;
        return Map.of("order", event.get("order").intValue(), "used", used, "clock", clock, "thread", threadId(), "request", context.getAwsRequestId());
    }

    /** Of the kernel, as in the label {@code thread.id}. */
    private static int threadId() {
        try {
            return Integer.parseInt(Path.of("/proc/thread-self").toRealPath().getFileName().toString());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static double lambda_work(double seconds) {
        var threads = ManagementFactory.getThreadMXBean();
        long began = threads.getCurrentThreadCpuTime();
        double sum = 0;
        while (threads.getCurrentThreadCpuTime() - began < seconds * 1e9) {
            for (int i = 0; i < 20_000; i++) sum += Math.sqrt(i);
        }
        return sum < 0 ? 0 : (threads.getCurrentThreadCpuTime() - began) / 1e9;
    }
}
