package io.spanprof;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

/**
 * Settings given to the VM as properties: {@code -Dotel.service.name=checkout} is {@code OTEL_SERVICE_NAME=checkout}, and wins
 * over it. So are those that begin with {@code spanprof.} and {@code pyroscope.}, and the lines of the file that
 * {@code pyroscope.configuration.file} names, or of {@code pyroscope.properties} where the program was started, over which
 * the environment wins.
 */
final class Variables {
    private static final String FILE = "PYROSCOPE_CONFIGURATION_FILE";
    private static final String USUAL_FILE = "pyroscope.properties";

    private Variables() {}

    static Map<String, String> given() {
        return given(System.getProperties(), System.getenv(), Path.of(""));
    }

    static Map<String, String> given(Properties properties, Map<String, String> environment, Path startedIn) {
        Map<String, String> own = named(properties);
        Map<String, String> all = new TreeMap<>();
        String file = own.getOrDefault(FILE, environment.get(FILE));
        Path usual = startedIn.resolve(USUAL_FILE);
        if (file != null || Files.isReadable(usual)) {
            all.putAll(named(read(file != null ? Path.of(file) : usual)));
            all.keySet().removeAll(environment.keySet());
        }
        all.putAll(own);
        return all;
    }

    private static Map<String, String> named(Properties properties) {
        Map<String, String> variables = new TreeMap<>();
        for (String property : properties.stringPropertyNames()) {
            boolean isOurs = property.startsWith("spanprof.") && !property.equals(NativeLibrary.DIRECTORY_PROPERTY);
            if (isOurs || property.startsWith("otel.") || property.startsWith("pyroscope.")) {
                variables.put(variable(property), properties.getProperty(property));
            }
        }
        return variables;
    }

    /** {@code spanprof.sampleRate}, {@code spanprof.sample.rate} and {@code spanprof.sample-rate} are one variable. */
    private static String variable(String property) {
        String words = property.replaceAll("(?<=[a-z0-9])(?=[A-Z])", "_").replace('.', '_').replace('-', '_');
        return words.toUpperCase(Locale.ROOT);
    }

    private static Properties read(Path file) {
        Properties properties = new Properties();
        try (Reader text = Files.newBufferedReader(file)) {
            properties.load(text);
        } catch (IOException | IllegalArgumentException failure) {
            HostLog.warn("spanprof: " + file + " cannot be read, it is ignored: " + failure);
        }
        return properties;
    }
}
