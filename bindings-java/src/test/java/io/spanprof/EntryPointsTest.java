package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Classes that a VM or a service loader loads by itself must load in VMs older than the profiler supports. */
class EntryPointsTest {
    /** Class-file version of Java 8. */
    private static final int JAVA_8 = 52;
    private static final int CLASS = 7;
    private static final int UTF_8 = 1;

    private final Path classes = Programs.locationOf(Spanprof.class);

    /** Entry points in the manifest, as written by the POM. */
    private static Set<String> ofManifest() throws IOException {
        Matcher entry = Pattern.compile("<(?:Premain|Agent|Launcher-Agent|Main)-Class>(.*?)</")
                .matcher(Files.readString(Path.of("pom.xml")));
        Set<String> names = new TreeSet<>();
        while (entry.find()) {
            names.add(entry.group(1));
        }
        return names;
    }

    private Set<String> ofServices() throws IOException {
        Set<String> names = new TreeSet<>();
        try (Stream<Path> files = Files.list(classes.resolve("META-INF/services"))) {
            for (Path file : files.toList()) {
                names.addAll(Files.readAllLines(file).stream().map(String::trim).filter(line -> !line.isEmpty()).toList());
            }
        }
        return names;
    }

    /** Returns a class's class-file version, and adds the classes in its constant pool to {@code named}. */
    private static int read(Path file, Set<String> named) throws IOException {
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
            in.readInt();
            in.readUnsignedShort();
            int version = in.readUnsignedShort();
            int count = in.readUnsignedShort();
            Map<Integer, String> texts = new TreeMap<>();
            Set<Integer> types = new TreeSet<>();
            for (int i = 1; i < count; i++) {
                int tag = in.readUnsignedByte();
                switch (tag) {
                    case UTF_8 -> texts.put(i, in.readUTF());
                    case CLASS -> types.add(in.readUnsignedShort());
                    case 8, 16, 19, 20 -> in.skipBytes(2);
                    case 15 -> in.skipBytes(3);
                    case 5, 6 -> {
                        in.skipBytes(8);
                        i++;
                    }
                    default -> in.skipBytes(4);
                }
            }
            types.forEach(type -> named.add(texts.get(type).replace('/', '.')));
            return version;
        }
    }

    @Test
    void everyClassReachableFromAnEntryPointLoadsOnJava8() throws IOException {
        Set<String> entries = ofManifest();
        assertEquals(Set.of(SpanprofAgent.class.getName()), entries);
        entries.addAll(ofServices());
        assertTrue(entries.size() >= 3, entries::toString);
        Deque<String> left = new ArrayDeque<>(entries);
        Map<String, Integer> versions = new TreeMap<>();
        while (!left.isEmpty()) {
            String name = left.pop();
            Path file = classes.resolve(name.replace('.', '/') + ".class");
            if (!versions.containsKey(name) && Files.exists(file)) {
                Set<String> named = new TreeSet<>();
                versions.put(name, read(file, named));
                left.addAll(named);
            }
        }
        assertTrue(versions.keySet().containsAll(entries), versions::toString);
        versions.values().removeIf(version -> version <= JAVA_8);
        assertEquals(Map.of(), versions, "classes of a later Java");
    }

    @Test
    void theAgentDeclaresBothEntryPoints() throws ReflectiveOperationException {
        for (String name : List.of("premain", "agentmain")) {
            assertEquals(void.class, SpanprofAgent.class.getMethod(name, String.class, Instrumentation.class).getReturnType());
        }
    }
}
