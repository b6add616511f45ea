package io.spanprof;

/** The profiler could not start, or not change as asked. Nothing else is ever thrown at the program. */
public final class SpanprofException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String kind;
    private final String hint;

    SpanprofException(String kind, String message, String hint) {
        super(hint.isEmpty() ? message : message + "\nhint: " + hint);
        this.kind = kind;
        this.hint = hint;
    }

    /** What kind of failure it is, such as {@code invalid_config}; the same names in every language. */
    public String kind() {
        return kind;
    }

    /** The way out; empty when there is none. */
    public String hint() {
        return hint;
    }
}
