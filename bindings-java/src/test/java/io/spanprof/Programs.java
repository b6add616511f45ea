package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.spanprof.programs.Plain;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Runs programs, each in its own process: on the Java version of the tests, or on an older one that the properties {@code
 * programs.java} (path of the launcher) and {@code programs.version} name. JUnit and the tests need Java 17.
 */
final class Programs {
    /** The Java version of the programs. */
    static final int VERSION = Integer.getInteger("programs.version", Runtime.version().feature());

    private static final String JAVA =
            System.getProperty("programs.java", Path.of(System.getProperty("java.home"), "bin", "java").toString());
    private static final long LIMIT_SECONDS = 120;

    private Programs() {}

    /** Skips the test if the programs run on an older Java than this. */
    static void assumeVersion(int first) {
        assumeTrue(VERSION >= first, () -> "the programs run on Java " + VERSION);
    }

    /** The option for a collector; skips the test where it is none, or an experimental one. */
    static String collector(String name) {
        assumeVersion(name.equals("Z") ? 15 : 8);
        return "-XX:+Use" + name + "GC";
    }

    /** The lines that a program printed. It must succeed within the time limit. */
    static List<String> run(Class<?> program, List<String> options, String... args) throws Exception {
        return run(program.getName(), System.getProperty("java.class.path"), options, args);
    }

    /** The output of the plain program with an agent in its options, and without the profiler on its class path. */
    static List<String> runPlain(List<String> options) throws Exception {
        List<String> output = run(Plain.class.getName(), locationOf(Plain.class).toString(), options);
        assertEquals(1, number(output, "worked"), output::toString);
        return output;
    }

    /** The class path directory of a class. */
    static Path locationOf(Class<?> type) {
        return Path.of(type.getProtectionDomain().getCodeSource().getLocation().getPath());
    }

    /** CPU nanoseconds in the work of the plain program, which burns a second, in the profiles of a directory. */
    static long plainNanoseconds(Path profiles) throws IOException {
        return ProfileFile.sum(ProfileFile.readAll(profiles), sample -> sample.has(Plain.class.getName() + ".work"));
    }

    static List<String> run(String program, String classPath, List<String> options, String... args)
            throws IOException, InterruptedException {
        File output = File.createTempFile("program", ".txt");
        Process process =
                builder(program, classPath, options, args).redirectErrorStream(true).redirectOutput(output).start();
        boolean ended = process.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS);
        if (!ended) {
            process.destroyForcibly().waitFor();
        }
        String text;
        try (InputStream in = new java.io.FileInputStream(output)) {
            text = new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
        output.delete();
        if (!ended || process.exitValue() != 0) {
            String how = ended ? "ended with " + process.exitValue() : "did not end in " + LIMIT_SECONDS + " s";
            throw new AssertionError(program + " " + how + ":\n" + text);
        }
        return text.lines().toList();
    }

    /** Starts a program with the output of this process; the caller ends it. */
    static Process start(Class<?> program, List<String> options, String... args) throws IOException {
        return builder(program.getName(), System.getProperty("java.class.path"), options, args)
                .redirectError(ProcessBuilder.Redirect.INHERIT).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    }

    private static ProcessBuilder builder(String program, String classPath, List<String> options, String... args) {
        List<String> command = new ArrayList<>();
        command.add(JAVA);
        command.add("-Xmx256m");
        if (VERSION >= 22) {
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        command.addAll(options);
        command.addAll(List.of("-cp", classPath, program));
        command.addAll(List.of(args));
        ProcessBuilder builder = new ProcessBuilder(command);
        // The machine's environment must not affect a test.
        builder.environment().keySet().removeIf(name -> name.matches("(SPANPROF|OTEL|PYROSCOPE)_.*"));
        return builder;
    }

    /** The number after {@code name} in lines of the form {@code name number}. */
    static long number(List<String> lines, String name) {
        return lines.stream().filter(line -> line.startsWith(name + " ")).findFirst()
                .map(line -> Long.parseLong(line.substring(name.length() + 1)))
                .orElseThrow(() -> new AssertionError("no line `" + name + "` in " + lines));
    }
}
