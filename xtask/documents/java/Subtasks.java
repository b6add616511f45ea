import java.util.concurrent.StructuredTaskScope;

/** As {@link Program}, for subtasks. */
class Subtasks extends Program {
    StructuredTaskScope.Joiner<Price, ?> joiner;
    StructuredTaskScope<Price, ?> subtasks;
}
