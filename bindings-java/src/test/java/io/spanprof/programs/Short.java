package io.spanprof.programs;

import io.spanprof.Spanprof;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.Logger;

/** Ends before its first window, in the way given by its argument. */
public final class Short {
    /** Held, since the JDK's loggers are weakly reachable. In a class of its own, so that other runs do not load the JDK's logging. */
    private static final class Held {
        static final Logger LOGGER = Logger.getLogger("spanprof");
    }

    private Short() {}

    public static void main(String[] args) {
        if (args[0].equals("chooses") || args[0].equals("blocks")) {
            boolean isBlocked = args[0].equals("blocks");
            Spanprof.setLogger(line -> print(isBlocked, "INFO", line), line -> print(isBlocked, "WARNING", line));
        }
        if (args[0].equals("logs")) {
            // From here on the JDK's logging has a shutdown hook.
            System.getLogger("mine").log(System.Logger.Level.INFO, "begun");
        }
        if (args[0].equals("warns")) {
            Held.LOGGER.setLevel(java.util.logging.Level.WARNING);
        }
        Spanprof.start();
        System.out.println("burnt " + burn());
        switch (args[0]) {
            case "stops" -> Spanprof.stop();
            case "exits" -> System.exit(0);
            case "exitsInAScope" -> Spanprof.tagWrapper(Map.of("at", "exit"), () -> System.exit(8));
            case "exitsWhileStopping" -> {
                new Thread(Spanprof::stop).start();
                System.exit(9);
            }
            case "exitsWhileFlushing" -> {
                new Thread(Spanprof::flush).start();
                System.exit(10);
            }
            case "halts" -> Runtime.getRuntime().halt(11);
            case "throws" -> throw new IllegalStateException("mine");
            case "terminated" -> {
                while (true) {
                    LockSupport.park();
                }
            }
            default -> { }
        }
    }

    private static long burn() {
        long sum = 0;
        for (long until = System.nanoTime() + 300_000_000L; System.nanoTime() < until;) {
            sum += until;
        }
        return sum;
    }

    /** With {@code isBlocked}, waits for ever at the end, as for a lock that no thread releases. */
    private static void print(boolean isBlocked, String level, String text) {
        while (isBlocked && text.contains("stopped after")) {
            LockSupport.park();
        }
        System.out.println("chosen " + level + " " + text);
    }
}
