package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.ArrayList;
import java.util.List;

/** Threads that follow references while a collector moves the objects, so that each access runs a GC barrier. */
public final class Barriers {
    private static volatile long sink;

    private Barriers() {}

    private static final class Cell {
        private final Cell next;
        private final int value;

        private final int length;

        private Cell(Cell next, int value) {
            boolean goesOn = next != null && next.length < 8;
            this.next = goesOn ? next : null;
            this.length = goesOn ? next.length + 1 : 1;
            this.value = value;
        }
    }

    static void outer(long untilNs) {
        Cell[] cells = new Cell[20_000];
        for (int round = 0; System.nanoTime() < untilNs; round++) {
            middle(cells, round);
        }
    }

    static void middle(Cell[] cells, int round) {
        for (int i = round & 3; i < cells.length; i += 4) {
            cells[i] = new Cell(cells[i * 31 % cells.length], i);
        }
        long sum = 0;
        for (Cell cell : cells) {
            sum += inner(cell);
        }
        sink += sum;
    }

    static long inner(Cell cell) {
        long sum = 0;
        for (Cell at = cell; at != null; at = at.next) {
            sum += at.value;
        }
        return sum;
    }

    public static void main(String[] args) throws InterruptedException {
        Spanprof.start(SpanprofConfig.builder().serviceName("barriers").sampleRate(1000).fileDirectory(args[0]).build());
        long untilNs = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000;
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Thread thread = new Thread(() -> outer(untilNs));
            thread.start();
            threads.add(thread);
        }
        while (System.nanoTime() < untilNs) {
            System.gc();
            Thread.sleep(20);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
