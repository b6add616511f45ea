/** A form of labelling work, as a program would write it. */
interface LabelForm {
    /** Labels almost no work so many times. */
    void run(int times);

    /** Periodic maintenance, every few seconds; not part of the cost. */
    default void settle() {}

    /** How a profiler's JAR calls it; each class is loaded only with the JAR it needs. */
    static LabelForm named(String profiler, String name) {
        return switch (profiler) {
            case "spanprof" -> OwnLabels.form(name);
            case "pyroscope" -> PyroscopeLabels.form(name);
            case "async-profiler" -> AsyncProfilerSpans.form(name);
            default -> times -> {
                for (int i = 0; i < times; i++) {
                    work(i);
                }
            };
        };
    }

    /** The labelled work: almost none. */
    static void work(int i) {
        Work.sink += i;
    }
}
