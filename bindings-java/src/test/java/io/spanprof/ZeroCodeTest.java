package io.spanprof;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.spanprof.programs.Services;
import java.io.File;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Programs with {@code -javaagent:spanprof.jar} and no line of the profiler, with and without OpenTelemetry's agent or SDK. */
class ZeroCodeTest {
    private static final String NONE = "";

    @TempDir
    Path folder;
    @TempDir
    Path profiles;

    private static List<String> classPath(String pattern) {
        return Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
                .filter(entry -> entry.matches(pattern)).toList();
    }

    /** Runs {@link Services} with agents in this order; the class path has these libraries beside it. */
    private List<String> run(String agents, String settings, String libraries, List<String> options, String... args) throws Exception {
        List<String> all = new ArrayList<>(options);
        for (String agent : agents.isEmpty() ? new String[0] : agents.split(" ")) {
            all.add(agent.equals("ours")
                    ? "-javaagent:" + LibraryTest.jar(folder, true) + "=sampleRate=250,cpuBudget=0,fileDirectory=" + profiles + settings
                    : "-javaagent:" + classPath(".*opentelemetry-javaagent.*").get(0));
        }
        all.addAll(List.of("-Dotel.traces.exporter=none", "-Dotel.metrics.exporter=none", "-Dotel.logs.exporter=none",
                "-Dotel.service.name=of-otel"));
        String classPath = classPath(".*/test-classes|" + libraries).stream().collect(Collectors.joining(File.pathSeparator));
        return Programs.run(Services.class.getName(), classPath, all, args);
    }

    /** Asserts that each of three requests is counted once, under this endpoint, and has its own span on its samples. */
    private void assertRequests(String endpoint, List<String> output) throws Exception {
        List<String> endpoints = new ArrayList<>();
        for (ProfileFile.Sample request : ProfileFile.readAll(profiles, "requests")) {
            for (long i = 0; i < request.count(); i++) {
                endpoints.add(request.labels().get("endpoint"));
            }
        }
        assertEquals(List.of(endpoint, endpoint, endpoint), endpoints, output::toString);
        Set<String> spans = ProfileFile.readAll(profiles).stream()
                .filter(sample -> sample.has(Services.class.getName() + ".work"))
                .map(sample -> sample.labels().get("trace_id") + " " + sample.labels().get("span_id"))
                .collect(Collectors.toSet());
        assertTrue(spans.size() == 3 && spans.stream().noneMatch(span -> span.contains("null")), () -> spans + " " + output);
        assertTrue(output.stream().noneMatch(line -> line.contains("spanprof: the requests of this process")), output::toString);
    }

    @ParameterizedTest
    @CsvSource({"spring, ours, GET /carts/{number}", "spring, ours theirs, GET /carts/{number}",
            "jetty, ours, GET /carts/*", "jdk, ours, GET /carts", "jdk, theirs ours, GET /carts"})
    void requestsOfAServiceAreNamedByTheirRoutes(String service, String agents, String endpoint) throws Exception {
        // Spring and Jetty need Java 17.
        Programs.assumeVersion(service.equals("jdk") ? 8 : 17);
        List<String> output = run(agents, NONE, ".*(spring|tomcat|micrometer|jetty|servlet|slf4j).*", List.of(), service);
        assertRequests(endpoint, output);
    }

    /** As in a JAR of Spring Boot: the agent's loader does not see OpenTelemetry, and the service files of its JAR are visible. */
    @Test
    void anSdkInALoaderOfTheProgramHasTheProcessorAndNoError() throws Exception {
        String libraries = String.join(File.pathSeparator, classPath(".*/test-classes|.*opentelemetry-(?!javaagent).*"));
        assertRequests("GET /carts", run("ours", NONE, "none", List.of("-Dlibraries=" + libraries), "child", "sdk"));
    }

    @ParameterizedTest
    @CsvSource({"true", "false"})
    void aProcessorOfTheProgramIsNotDoubled(boolean registers) throws Exception {
        List<String> options = List.of("-Dregisters=" + registers);
        assertRequests("GET /carts", run("ours", NONE, ".*opentelemetry-(?!javaagent).*", options, "sdk"));
    }

    @Test
    void withoutTheAgentTheGlobalProviderHasTheProcessorFromTheFirstSpanOn() throws Exception {
        List<String> options = List.of("-Dspanprof.sample.rate=250", "-Dspanprof.cpu.budget=0", "-Dspanprof.file.directory=" + profiles);
        assertRequests("GET /carts", run(NONE, NONE, ".*/classes|.*opentelemetry-(?!javaagent).*", options, "global"));
    }

    @Test
    void withoutRequestsNothingIsInstalled() throws Exception {
        run("ours", ",requests=false", ".*(spring|tomcat|micrometer).*", List.of(), "spring");
        assertEquals(List.of(), ProfileFile.readAll(profiles, "requests"));
        assertTrue(ProfileFile.sum(ProfileFile.readAll(profiles), sample -> sample.has(Services.class.getName() + ".work")) > 0);
    }
}
