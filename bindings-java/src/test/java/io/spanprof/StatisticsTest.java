package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Shares;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Compares the names in {@code stats()} with the documentation; a working program has no faults. */
class StatisticsTest {
    private static final Path DOCUMENTS = Path.of("../docs");

    @TempDir
    Path profiles;

    private static Set<String> documented() throws IOException {
        Set<String> names = new TreeSet<>();
        for (String page : List.of("reference/statistics.md", "internals/runtime-statistics.md")) {
            Matcher quoted = Pattern.compile("`([^`\n]+)`").matcher(Files.readString(DOCUMENTS.resolve(page)));
            while (quoted.find()) {
                names.add(quoted.group(1));
            }
        }
        return names;
    }

    /**
     * Replaces a destination's number and a key's name by placeholders; names of this runtime are documented without their
     * prefix.
     */
    private static String placeholderName(String name) {
        return name.replaceFirst("^config\\.[a-z_]+", "config.<key>").replaceFirst("^export\\.\\d+\\.", "export.<n>.")
                .replaceFirst("^runtime\\.java\\.", "");
    }

    private static boolean isDocumented(String name, Set<String> documented) {
        int reason = name.indexOf("dropped") + "dropped".length() + 1;
        return documented.contains(name)
                || name.contains("dropped") && documented.contains(name.substring(reason))
                        && documented.contains(name.substring(0, reason) + "<reason>");
    }

    @Test
    void everyNameIsDocumented() throws Exception {
        Set<String> documented = documented();
        for (String walk : List.of("own", "vm")) {
            List<String> output = Programs.run(Shares.class, List.of(), profiles.toString(), "250", "1", walk);
            List<String> names = output.stream().map(line -> line.split(" ", 2)[0])
                    .filter(name -> name.equals("state") || name.contains(".")).toList();
            assertTrue(names.size() > 100, output::toString);
            // A handler of SIGSEGV that the program installs after the start would be called.
            assertTrue(walk.equals("vm") || output.contains("clock.guarded_faults 0"), output::toString);
            for (String name : names) {
                assertTrue(isDocumented(placeholderName(name), documented), name);
            }
        }
    }
}
