package io.spanprof;

/** The profiler could not start, or could not apply an update. No other exception is thrown into the program. */
public final class SpanprofException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String kind;
    private final String hint;

    SpanprofException(String kind, String message, String hint) {
        super(hint.isEmpty() ? message : message + "\nhint: " + hint);
        this.kind = kind;
        this.hint = hint;
    }

    /** The kind of failure, such as {@code invalid_config}; the names are equal in all languages. */
    public String kind() {
        return kind;
    }

    /** How to fix the failure; empty if unknown. */
    public String hint() {
        return hint;
    }
}
