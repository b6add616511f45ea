package io.spanprof.entry;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Which Java runs the profiler. */
class JavaSupportTest {
    @Test
    void theFeatureNumberIsReadFromVersionsOfOldAndNewForm() {
        assertEquals(8, JavaSupport.feature("1.8"));
        assertEquals(11, JavaSupport.feature("11"));
        assertEquals(25, JavaSupport.feature("25"));
        assertEquals(0, JavaSupport.feature(""));
    }

    @Test
    void theJavaOfTheTestsIsSupported() {
        assertTrue(JavaSupport.isSupported());
    }
}
