package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;

/** Labels that threads inherit from the thread that created them. */
class InheritedTest {
    /** The outcome of each run is logged as INFO, which the JDK's loggers print unless they have no handler. */
    private static final List<String> NO_LOG = List.of("-Djava.util.logging.config.file=/dev/null");

    @Test
    void withInheritThreadsAThreadStartsWithTheLabelsOfItsCreatorAndAnExecutorsThreadWithNone() throws Exception {
        assertEquals(List.of("thread [a, 1]", "grandchild [a, 1, b, 2]", "untouched_grandchild [a, 1]", "pool []",
                "pool_with_lambda []", "fork_join []", "itself [a, 1]", "before []", "after []", "stopped []", "without_it []"),
                Programs.run(Inherits.class, NO_LOG, "yes"));
    }

    @Test
    void withoutInheritThreadsAThreadStartsWithoutLabels() throws Exception {
        assertEquals(List.of("thread []", "grandchild []", "untouched_grandchild []", "pool []", "pool_with_lambda []",
                "fork_join []", "itself [a, 1]", "before []", "after []", "stopped []", "without_it []"),
                Programs.run(Inherits.class, NO_LOG, "no"));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void withInheritThreadsAVirtualThreadStartsWithTheLabelsOfItsCreatorAndAPooledOneWithNone() throws Exception {
        assertEquals(List.of("thread [a, 1]", "grandchild [a, 1, b, 2]", "untouched_grandchild [a, 1]",
                "platform_grandchild [a, 1]", "per_task [a, 1]", "per_task_with_lambda [a, 1]", "per_task_on_platform [a, 1]",
                "pool []", "factory []", "without_locals []", "itself [a, 1]", "after []", "stopped []", "without_it []",
                "again_with_it [a, 1]"), Programs.run(InheritsVirtual.class, NO_LOG, "yes"));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "there are no virtual threads before Java 21")
    void withoutInheritThreadsAVirtualThreadStartsWithoutLabels() throws Exception {
        assertEquals(List.of("thread []", "grandchild []", "untouched_grandchild []", "platform_grandchild []", "per_task []",
                "per_task_with_lambda []", "per_task_on_platform []", "pool []", "factory []", "without_locals []",
                "itself [a, 1]", "after []", "stopped []", "without_it []", "again_with_it []"),
                Programs.run(InheritsVirtual.class, NO_LOG, "no"));
    }
}
