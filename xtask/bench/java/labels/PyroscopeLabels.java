import io.pyroscope.labels.v2.ConstantContext;
import io.pyroscope.labels.v2.LabelsSet;
import io.pyroscope.labels.v2.Pyroscope;
import java.util.Map;
import java.util.concurrent.Callable;

/** Pyroscope's forms; they have no trace and no span. */
final class PyroscopeLabels implements LabelForm {
    private static final int PREPARED = 8;

    private final LabelForm form;

    private PyroscopeLabels(LabelForm form) {
        this.form = form;
    }

    static LabelForm form(String name) {
        LabelsSet[] sets = new LabelsSet[PREPARED];
        ConstantContext[] constants = new ConstantContext[PREPARED];
        for (int i = 0; i < PREPARED; i++) {
            sets[i] = new LabelsSet("endpoint", "/" + i);
            constants[i] = ConstantContext.of(sets[i]);
        }
        return new PyroscopeLabels(switch (name) {
            case "tag" -> times -> {
                for (int i = 0; i < times; i++) {
                    constants[i % PREPARED].activate();
                    LabelForm.work(i);
                    constants[i % PREPARED].deactivate();
                }
            };
            case "wrapper" -> times -> {
                for (int i = 0; i < times; i++) {
                    int own = i;
                    Pyroscope.LabelsWrapper.run(sets[i % PREPARED], () -> LabelForm.work(own));
                }
            };
            case "wrapper-map" -> times -> {
                for (int i = 0; i < times; i++) {
                    int own = i;
                    LabelsSet labels = new LabelsSet("endpoint", "/" + i % PREPARED, "tenant", "blue", "job", "nightly");
                    Pyroscope.LabelsWrapper.run(labels, () -> LabelForm.work(own));
                }
            };
            default -> throw new IllegalArgumentException(name);
        });
    }

    @Override
    public void run(int times) {
        form.run(times);
    }

    /** Its agent does this at the end of each window; until then it keeps every context. */
    @Override
    public void settle() {
        Pyroscope.LabelsWrapper.dump();
    }

    /** A request of a kind. */
    static double request(String kind, Callable<Double> work) throws Exception {
        return Pyroscope.LabelsWrapper.run(new LabelsSet("route", "/" + kind), work);
    }

    static boolean isRight(String kind, Map<String, String> labels) {
        return ("/" + kind).equals(labels.get("route"));
    }
}
