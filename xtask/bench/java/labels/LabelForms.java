import io.spanprof.Labels;
import io.spanprof.Scope;
import io.spanprof.SpanLink;
import io.spanprof.Spanprof;
import java.util.Map;

/** A form of labelling, as a program would write it. Prepared labels are used in turn, like the endpoints of a service. */
interface LabelForms {
    int PREPARED = 8;
    String TRACE = "0af7651916cd43dd8448eb211c80319";
    String SPAN = "b7ad6b7169203331";

    /** Labels almost no work so many times. */
    void run(int times);

    private static Map<String, String> labels(int number) {
        return Map.of("endpoint", "/" + number, "trace_id", TRACE + number, "span_id", SPAN);
    }

    private static Labels[] prepared() {
        Labels[] prepared = new Labels[PREPARED];
        for (int i = 0; i < PREPARED; i++) {
            prepared[i] = Labels.of(labels(i));
        }
        return prepared;
    }

    private static void work(int i) {
        LabelRun.sink += i;
    }

    static LabelForms named(String name) {
        Labels[] prepared = prepared();
        return switch (name) {
            case "none" -> times -> {
                for (int i = 0; i < times; i++) {
                    work(i);
                }
            };
            case "tag" -> times -> {
                for (int i = 0; i < times; i++) {
                    try (Scope scope = Spanprof.tag(prepared[i % PREPARED])) {
                        work(i);
                    }
                }
            };
            case "tag inside of another" -> times -> {
                try (Scope outer = Spanprof.tag(Map.of("job", "nightly"))) {
                    for (int i = 0; i < times; i++) {
                        try (Scope scope = Spanprof.tag(prepared[i % PREPARED])) {
                            work(i);
                        }
                    }
                }
            };
            case "wrapper" -> times -> {
                for (int i = 0; i < times; i++) {
                    int own = i;
                    Spanprof.tagWrapper(prepared[i % PREPARED], () -> work(own));
                }
            };
            case "wrapper of a map" -> times -> {
                for (int i = 0; i < times; i++) {
                    int own = i;
                    Spanprof.tagWrapper(labels(i % PREPARED), () -> work(own));
                }
            };
            case "span" -> {
                String[] traces = new String[PREPARED];
                for (int i = 0; i < PREPARED; i++) {
                    traces[i] = TRACE + i;
                }
                yield times -> {
                    for (int i = 0; i < times; i++) {
                        SpanLink before = SpanLink.activate(traces[i % PREPARED], SPAN);
                        work(i);
                        before.restore();
                    }
                };
            }
            default -> throw new IllegalArgumentException(name);
        };
    }
}
