package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.ProfileFile.Frame;
import io.spanprof.ProfileFile.Sample;
import io.spanprof.programs.CallsNative;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Native frames in the stacks of a program that calls a library of its own by JNI. */
class NativeFramesTest {
    private static final String PROGRAM = CallsNative.class.getName() + ".";
    private static final String FUNCTION = "Java_" + PROGRAM.replace('.', '_');
    private static final List<String> SPLIT =
            List.of("chain_split", "chain_inner", "chain_outer", FUNCTION + "split", PROGRAM + "split", PROGRAM + "work");
    private static final List<String> CALL_BACK =
            List.of("chain_back", "chain_call", FUNCTION + "callBack", PROGRAM + "callBack", PROGRAM + "work");

    @TempDir
    Path profiles;

    @TempDir
    Path libraries;

    @Test
    void everySampleOfALibraryWithoutFramePointersHasAllCallersInNativeCodeAndInJava() throws Exception {
        Path library = compiled("chain.c");
        List<String> output = Programs.run(CallsNative.class, List.of(), profiles.toString(), library.toString(), "500", "1500");
        assertEquals(1, Programs.number(output, "stopped"));
        List<Sample> samples = ProfileFile.readAll(profiles).stream().filter(sample -> sample.has(PROGRAM + "measured")).toList();
        Map<String, Double> shares = Map.of("chain_half", 0.5, "chain_third", 0.3, "chain_fifth", 0.2);
        long all = ProfileFile.sum(samples, sample -> shares.containsKey(sample.leaf()));
        long count = samples.stream().filter(sample -> shares.containsKey(sample.leaf())).mapToLong(Sample::count).sum();
        shares.forEach((function, share) -> {
            double seen = (double) ProfileFile.sum(samples, sample -> sample.leaf().equals(function)) / all;
            // Five standard errors.
            assertEquals(share, seen, 5 * Math.sqrt(share * (1 - share) / count), function);
        });
        for (Sample sample : samples) {
            List<String> functions = sample.frames().stream().map(Frame::function).toList();
            if (shares.containsKey(sample.leaf())) {
                assertEquals(SPLIT, functions.subList(1, 1 + SPLIT.size()));
            } else if (sample.leaf().equals(PROGRAM + "back")) {
                assertEquals(CALL_BACK, functions.subList(1, 1 + CALL_BACK.size()));
            }
            assertTrue(!sample.has("[invalid_frame]") && !sample.has("[unknown_callers]"), functions::toString);
        }
    }

    private Path compiled(String source) throws Exception {
        Path library = libraries.resolve("lib" + source + ".so");
        String include = Path.of(System.getProperty("java.home"), "include").toString();
        Process compiler = new ProcessBuilder("cc", "-O2", "-fomit-frame-pointer", "-fPIC", "-shared", "-I" + include,
                "-I" + include + "/linux", "-o", library.toString(), "src/test/c/" + source).inheritIO().start();
        assertEquals(0, compiler.waitFor());
        return library;
    }
}
