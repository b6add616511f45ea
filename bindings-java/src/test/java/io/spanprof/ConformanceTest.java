package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The Java runner of the conformance suite. */
class ConformanceTest {
    private static final Path CASES = Path.of("../core/conformance/cases");
    private static List<String> output;

    @BeforeAll
    static void run() throws Exception {
        output = Programs.run(Cases.class, List.of(), CASES.toString());
    }

    @TestFactory
    Stream<DynamicTest> everyCaseHoldsInJava() throws Exception {
        return Cases.in(CASES).stream().map(Path::getFileName).map(Path::toString).map(file ->
                DynamicTest.dynamicTest(file, () -> {
                    String name = file.substring(0, file.length() - ".yaml".length());
                    String start = "case\t" + file + "\t";
                    assertEquals(List.of(start + name), output.stream().filter(line -> line.startsWith(start)).toList());
                }));
    }

    @Test
    void thereAreCasesAndAFailingCaseIsReported() throws Exception {
        assertTrue(Cases.in(CASES).size() >= 30);
        String broken = output.stream().filter(line -> line.startsWith("broken\t")).findFirst().orElseThrow();
        assertTrue(broken.contains("\"b 1\"") && broken.contains("\"a 1\""), broken);
    }
}
