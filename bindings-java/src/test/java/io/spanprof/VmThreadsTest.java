package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.VmThreads;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The VM's internal threads: grouped, with functions that its library does not export. */
class VmThreadsTest {
    @TempDir
    Path profiles;

    @Test
    void compilerAndGcThreadsAreGroupsWithFunctionsOfTheVm() throws Exception {
        Programs.run(VmThreads.class, List.of("-Xcomp", "-XX:+UseParallelGC"), profiles.toString());
        List<ProfileFile.Sample> samples = ProfileFile.readAll(profiles);
        for (String group : List.of("JIT compiler", "GC")) {
            long all = ProfileFile.sum(samples, sample -> sample.has(group));
            long nameless = ProfileFile.sum(samples, sample -> sample.has(group) && sample.leaf().equals("[libjvm.so]"));
            assertTrue(all > 20_000_000, () -> group + " " + all + " ns of " + samples);
            assertTrue(nameless < all / 100, () -> group + ": " + nameless + " ns of " + all + " in functions without a name");
        }
        assertTrue(samples.stream().anyMatch(sample -> sample.has("JIT compiler")
                && sample.has("C2Compiler::compile_method") && sample.has("JavaThread::thread_main_inner")), samples::toString);
    }
}
