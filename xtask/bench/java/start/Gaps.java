/** A thread that only reads the clock, and records the longest gap between two readings. */
final class Gaps implements AutoCloseable {
    private final Thread thread = new Thread(this::spin);
    private volatile boolean isOver;
    private volatile long longestNs;
    private volatile boolean forget;

    Gaps() throws InterruptedException {
        thread.setDaemon(true);
        thread.start();
        // Wait for its compilation.
        Thread.sleep(300);
    }

    private void spin() {
        long last = System.nanoTime();
        long longest = 0;
        while (!isOver) {
            long now = System.nanoTime();
            if (forget) {
                longest = 0;
                longestNs = 0;
                forget = false;
            } else if (now - last > longest) {
                longest = now - last;
                longestNs = longest;
            }
            last = now;
        }
    }

    /** The longest gap since the last call. */
    double takeMs() throws InterruptedException {
        // A gap in progress ends first.
        Thread.sleep(2);
        double longest = longestNs / 1e6;
        forget = true;
        while (forget) {
            Thread.onSpinWait();
        }
        return longest;
    }

    @Override
    public void close() {
        isOver = true;
    }
}
