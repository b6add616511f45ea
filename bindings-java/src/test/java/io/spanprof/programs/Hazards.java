package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;

/** Operations for which the VM uses its own signals or frees code, at the highest sample rate. */
public final class Hazards {
    private static int sink;

    /** A field whose access is the VM's null check. */
    private int value = 1;

    private Hazards() {}

    private static int access(Hazards nothing) {
        return nothing.value;
    }

    private static int deeper(int depth) {
        return deeper(depth + 1) + 1;
    }

    /** A class loader that is collected with its class. */
    private static final class Passing extends ClassLoader {
        Class<?> again(byte[] code) {
            return defineClass(null, code, 0, code.length);
        }
    }

    /** Loaded again and again. In Java 8, its functions keep words on top of the frame of compiled code. */
    public static final class Short implements Runnable {
        private double sum;

        @Override
        public void run() {
            for (int i = 0; i < 200_000; i++) {
                sum += Math.sin(i) + Math.pow(i, 0.3);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        SpanprofConfig.Builder settings =
                SpanprofConfig.builder().serviceName("hazards").sampleRate(1000).fileDirectory(args[0]);
        if (args.length > 2) {
            settings.set("stackWalk", args[2]);
        }
        Spanprof.start(settings.build());
        long end = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000;
        long nulls = 0;
        long overflows = 0;
        long classes = 0;
        byte[] code;
        try (InputStream in = Hazards.class.getResourceAsStream("Hazards$Short.class")) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            for (int next = in.read(); next >= 0; next = in.read()) {
                out.write(next);
            }
            code = out.toByteArray();
        }
        while (System.nanoTime() < end) {
            for (int i = 0; i < 20_000; i++) {
                try {
                    sink += access(i % 4 == 0 ? null : new Hazards());
                } catch (NullPointerException expected) {
                    nulls++;
                }
            }
            try {
                sink += deeper(0);
            } catch (StackOverflowError expected) {
                overflows++;
            }
            Runnable work = (Runnable) new Passing().again(code).getDeclaredConstructor().newInstance();
            work.run();
            classes++;
            Thread thread = new Thread(work);
            thread.start();
            thread.join();
            if (classes % 10 == 0) {
                System.gc();
            }
        }
        System.out.println("nulls " + nulls);
        System.out.println("overflows " + overflows);
        System.out.println("classes " + classes);
        Spanprof.stats().forEach((name, value) -> System.out.println(name + " " + value));
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
