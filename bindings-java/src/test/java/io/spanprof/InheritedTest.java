package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Labels of threads that inherit them from the thread that made them. */
class InheritedTest {
    @Test
    void withInheritThreadsAThreadStartsWithTheLabelsOfItsMakerAndAnExecutorsWithNone() throws Exception {
        assertEquals(List.of("thread [a, 1]", "grandchild [a, 1, b, 2]", "untouched_grandchild [a, 1]", "pool []",
                "pool_with_lambda []", "fork_join []", "itself [a, 1]", "before []", "after []", "stopped []"),
                Programs.run(Inherits.class, List.of(), "yes"));
    }

    @Test
    void withoutItAThreadStartsWithoutLabels() throws Exception {
        assertEquals(List.of("thread []", "grandchild []", "untouched_grandchild []", "pool []", "pool_with_lambda []",
                "fork_join []", "itself [a, 1]", "before []", "after []", "stopped []"),
                Programs.run(Inherits.class, List.of(), "no"));
    }
}
