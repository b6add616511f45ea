import one.profiler.Span;

/** async-profiler's spans: named intervals of a thread, joined with samples afterwards. */
final class AsyncProfilerSpans {
    private AsyncProfilerSpans() {}

    static LabelForm form(String name) {
        if (!name.equals("span")) {
            throw new IllegalArgumentException(name);
        }
        return times -> {
            for (int i = 0; i < times; i++) {
                long begun = Span.start();
                LabelForm.work(i);
                Span.endIfProfiled(begun, "/cart");
            }
        };
    }
}
