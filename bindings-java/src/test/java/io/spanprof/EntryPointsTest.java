package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The package as a VM loads it. */
class EntryPointsTest {
    /** Class-file version of Java 8. */
    private static final int JAVA_8 = 52;

    @Test
    void everyClassLoadsOnJava8() throws IOException {
        Map<String, Integer> versions = new TreeMap<>();
        try (Stream<Path> files = Files.walk(Programs.locationOf(Spanprof.class).resolve("io/spanprof"))) {
            for (Path file : files.filter(path -> path.toString().endsWith(".class")).toList()) {
                try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
                    in.readInt();
                    versions.put(file.toString(), in.readInt());
                }
            }
        }
        assertTrue(versions.size() > 50, versions::toString);
        versions.values().removeIf(version -> version == JAVA_8);
        assertEquals(Map.of(), versions, "classes of another Java");
    }

    @Test
    void theAgentDeclaresBothEntryPoints() throws ReflectiveOperationException {
        for (String name : List.of("premain", "agentmain")) {
            assertEquals(void.class, SpanprofAgent.class.getMethod(name, String.class, Instrumentation.class).getReturnType());
        }
    }
}
