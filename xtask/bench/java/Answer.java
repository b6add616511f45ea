import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/** Output of a measured process for its parent: lines of a name and values on standard output. */
final class Answer {
    private Answer() {}

    static void say(String name, Collection<?> values) {
        String text = values.stream()
                .map(value -> value instanceof Double ? String.format(Locale.ROOT, "%.6f", value) : String.valueOf(value))
                .collect(Collectors.joining(" "));
        System.out.println("= " + name + " " + text);
    }

    static void say(String name, Object value) {
        say(name, List.of(value));
    }
}
