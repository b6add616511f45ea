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

/** The names in {@code stats()}, against the pages that say what they tell. */
class StatisticsTest {
    private static final Path DOCUMENTS = Path.of("../docs");

    @TempDir
    Path profiles;

    private static Set<String> documented() throws IOException {
        Set<String> names = new TreeSet<>();
        for (String page : List.of("statistics.md", "java.md")) {
            Matcher quoted = Pattern.compile("`([^`\n]+)`").matcher(Files.readString(DOCUMENTS.resolve(page)));
            while (quoted.find()) {
                names.add(quoted.group(1));
            }
        }
        return names;
    }

    /** A destination's number and a key's name are whatever they are; those of this runtime stand in a table of their own. */
    private static String general(String name) {
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
            List<String> said = Programs.run(Shares.class, List.of(), profiles.toString(), "250", "1", walk);
            List<String> names = said.stream().map(line -> line.split(" ", 2)[0])
                    .filter(name -> name.equals("state") || name.contains(".")).toList();
            assertTrue(names.size() > 100, said::toString);
            for (String name : names) {
                assertTrue(isDocumented(general(name), documented), name);
            }
        }
    }
}
