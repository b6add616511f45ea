package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.spanprof.programs.Shares;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Settings from system properties. */
class VariablesTest {
    @TempDir
    Path folder;

    private static Properties properties(String... namesAndValues) {
        Properties properties = new Properties();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            properties.setProperty(namesAndValues[i], namesAndValues[i + 1]);
        }
        return properties;
    }

    @Test
    void propertiesAreConvertedToVariables() {
        Properties properties = properties("otel.service.name", "checkout", "spanprof.sampleRate", "99", "spanprof.upload-interval", "5",
                "pyroscope.application.name", "old", "java.home", "/", "spanprof.libraryDirectory", "/opt");
        assertEquals(Map.of("OTEL_SERVICE_NAME", "checkout", "SPANPROF_SAMPLE_RATE", "99", "SPANPROF_UPLOAD_INTERVAL", "5",
                "PYROSCOPE_APPLICATION_NAME", "old"), Variables.read(properties, Map.of(), folder));
    }

    @Test
    void theEnvironmentOverridesPyroscopesPropertiesFile() throws Exception {
        Path file = folder.resolve("pyroscope.properties");
        Files.writeString(file, "pyroscope.application.name=filed\npyroscope.tenant.id=t\npyroscope.labels=a=b\n");
        Map<String, String> environment =
                Map.of("PYROSCOPE_CONFIGURATION_FILE", file.toString(), "PYROSCOPE_TENANT_ID", "of the environment");
        assertEquals(Map.of("PYROSCOPE_APPLICATION_NAME", "properties", "PYROSCOPE_LABELS", "a=b"),
                Variables.read(properties("pyroscope.application.name", "properties"), environment, folder));
        assertEquals(Map.of("PYROSCOPE_CONFIGURATION_FILE", folder.toString()),
                Variables.read(properties("pyroscope.configuration.file", folder.toString()), Map.of(), folder.resolve("elsewhere")));
    }

    @Test
    void theDefaultPropertiesFileIsInTheWorkingDirectory() throws Exception {
        assertEquals(Map.of(), Variables.read(properties(), Map.of(), folder));
        Files.writeString(folder.resolve("pyroscope.properties"), "pyroscope.server.address=http://fire:4040\n");
        assertEquals(Map.of("PYROSCOPE_SERVER_ADDRESS", "http://fire:4040"), Variables.read(properties(), Map.of(), folder));
        assertEquals(Map.of(), Variables.read(properties(), Map.of("PYROSCOPE_SERVER_ADDRESS", "x"), folder));
    }

    @Test
    void aPropertyReachesTheCore() throws Exception {
        for (String disabled : List.of("false", "true")) {
            Path profiles = Files.createDirectory(folder.resolve(disabled));
            Programs.run(Shares.class, List.of("-Dspanprof.disabled=" + disabled), profiles.toString(), "250", "2");
            assertEquals(disabled.equals("true"), ProfileFile.readAll(profiles).isEmpty(), disabled);
        }
    }
}
