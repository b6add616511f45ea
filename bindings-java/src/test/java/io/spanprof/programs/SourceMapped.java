package io.spanprof.programs;

import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/** Runs a class as Kotlin compiles it: its file ends with .kt, and a constant of an annotation is its source map. */
public final class SourceMapped {
    private SourceMapped() {}

    @interface SourceDebugExtension {
        String value();
    }

    @SourceDebugExtension("SMAP\nSourceMappedKt.kt\nKotlin\n*S Kotlin\n*F\n+ 1 Inline.kt\nshop/InlineKt\n*L\n7#1,999:1\n"
            + "*S KotlinDebug\n*F\n+ 1 SourceMappedKt.kt\nshop/SourceMappedKt\n*L\n5#1:1,999\n*E\n")
    static final class Mapped implements Runnable {
        private double sum;

        @Override
        public void run() {
            for (long end = System.nanoTime() + 1_000_000_000L; System.nanoTime() < end; ) {
                for (int i = 0; i < 20_000; i++) {
                    sum += Math.sqrt(i + sum);
                }
            }
        }
    }

    /** Defines the class anew, with another file name of the same length. */
    private static final class Loader extends ClassLoader {
        Class<?> define() throws IOException {
            String file = Mapped.class.getName().replace('.', '/') + ".class";
            try (InputStream in = SourceMapped.class.getClassLoader().getResourceAsStream(file)) {
                String code = new String(in.readAllBytes(), StandardCharsets.ISO_8859_1);
                byte[] changed = code.replace("SourceMapped.java", "SourceMappedKt.kt").getBytes(StandardCharsets.ISO_8859_1);
                return defineClass(null, changed, 0, changed.length);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder().serviceName("mapped").sampleRate(500).fileDirectory(args[0]).build());
        var constructor = new Loader().define().getDeclaredConstructor();
        constructor.setAccessible(true);
        ((Runnable) constructor.newInstance()).run();
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
