package io.spanprof;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

/**
 * Settings from system properties: {@code -Dotel.service.name=checkout} overrides {@code OTEL_SERVICE_NAME}. Properties
 * that begin with {@code spanprof.} and {@code pyroscope.} work alike. The environment overrides the lines of the file
 * {@code pyroscope.configuration.file}, or of {@code pyroscope.properties} in the working directory.
 */
final class Variables {
    private static final String FILE = "PYROSCOPE_CONFIGURATION_FILE";
    private static final String DEFAULT_FILE = "pyroscope.properties";

    private Variables() {}

    static Map<String, String> read() {
        return read(System.getProperties(), System.getenv(), Paths.get(""));
    }

    static Map<String, String> read(Properties properties, Map<String, String> environment, Path workingDirectory) {
        Map<String, String> overrides = variables(properties);
        Map<String, String> all = new TreeMap<>();
        String file = overrides.getOrDefault(FILE, environment.get(FILE));
        Path defaultFile = workingDirectory.resolve(DEFAULT_FILE);
        if (file != null || Files.isReadable(defaultFile)) {
            all.putAll(variables(load(file != null ? Paths.get(file) : defaultFile)));
            all.keySet().removeAll(environment.keySet());
        }
        all.putAll(overrides);
        return all;
    }

    private static Map<String, String> variables(Properties properties) {
        Map<String, String> variables = new TreeMap<>();
        for (String property : properties.stringPropertyNames()) {
            boolean isSpanprof = property.startsWith("spanprof.") && !property.equals(NativeLibrary.DIRECTORY_PROPERTY);
            if (isSpanprof || property.startsWith("otel.") || property.startsWith("pyroscope.")) {
                variables.put(variable(property), properties.getProperty(property));
            }
        }
        return variables;
    }

    /** {@code spanprof.sampleRate}, {@code spanprof.sample.rate} and {@code spanprof.sample-rate} are one variable. */
    private static String variable(String property) {
        String separated = property.replaceAll("(?<=[a-z0-9])(?=[A-Z])", "_").replace('.', '_').replace('-', '_');
        return separated.toUpperCase(Locale.ROOT);
    }

    private static Properties load(Path file) {
        Properties properties = new Properties();
        // Not by a channel: its first use loads libraries, and where that fails, the program has no channels.
        try (Reader text = new InputStreamReader(new FileInputStream(file.toFile()), StandardCharsets.UTF_8)) {
            properties.load(text);
        } catch (IOException | IllegalArgumentException failure) {
            HostLog.warn("spanprof: " + file + " cannot be read and is ignored: " + failure);
        }
        return properties;
    }
}
