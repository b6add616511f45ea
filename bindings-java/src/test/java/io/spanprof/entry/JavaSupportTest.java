package io.spanprof.entry;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** The check of the Java version. */
class JavaSupportTest {
    @Test
    void theFeatureVersionIsParsedFromOldAndNewVersionStrings() {
        assertEquals(8, JavaSupport.feature("1.8"));
        assertEquals(11, JavaSupport.feature("11"));
        assertEquals(25, JavaSupport.feature("25"));
        assertEquals(0, JavaSupport.feature(""));
    }

    @Test
    void theTestsJavaVersionIsSupported() {
        assertTrue(JavaSupport.isSupported());
    }
}
