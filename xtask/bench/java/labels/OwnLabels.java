import io.spanprof.Labels;
import io.spanprof.Scope;
import io.spanprof.SpanLink;
import io.spanprof.Spanprof;
import java.util.Map;
import java.util.concurrent.Callable;

/** spanprof's forms. Prepared labels are used in turn, like the endpoints of a service. */
final class OwnLabels {
    private static final int PREPARED = 8;
    private static final String TRACE = "0af7651916cd43dd8448eb211c80319";
    private static final String SPAN = "b7ad6b7169203331";

    private OwnLabels() {}

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

    /** A request of a kind, with its route and its span. */
    static double request(String kind, Callable<Double> work) throws Exception {
        Map<String, String> labels = Map.of("route", "/" + kind, "trace_id", TRACE + kind.length(), "span_id", SPAN);
        return Spanprof.tagWrapper(labels, work::call);
    }

    static boolean isRight(String kind, Map<String, String> labels) {
        return ("/" + kind).equals(labels.get("route")) && (TRACE + kind.length()).equals(labels.get("trace_id"))
                && SPAN.equals(labels.get("span_id"));
    }

    static LabelForm form(String name) {
        Labels[] prepared = prepared();
        return switch (name) {
            case "tag" -> times -> {
                for (int i = 0; i < times; i++) {
                    try (Scope scope = Spanprof.tag(prepared[i % PREPARED])) {
                        LabelForm.work(i);
                    }
                }
            };
            case "tag-inside" -> times -> {
                try (Scope outer = Spanprof.tag(Map.of("job", "nightly"))) {
                    for (int i = 0; i < times; i++) {
                        try (Scope scope = Spanprof.tag(prepared[i % PREPARED])) {
                            LabelForm.work(i);
                        }
                    }
                }
            };
            case "wrapper" -> times -> {
                for (int i = 0; i < times; i++) {
                    int own = i;
                    Spanprof.tagWrapper(prepared[i % PREPARED], () -> LabelForm.work(own));
                }
            };
            case "wrapper-map" -> times -> {
                for (int i = 0; i < times; i++) {
                    int own = i;
                    Spanprof.tagWrapper(labels(i % PREPARED), () -> LabelForm.work(own));
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
                        LabelForm.work(i);
                        before.restore();
                    }
                };
            }
            default -> throw new IllegalArgumentException(name);
        };
    }
}
