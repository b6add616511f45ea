package shop;

import io.spanprof.Spanprof;
import io.spanprof.servlet.SpanprofFilter;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;

/**
 * A small shop on Spring Boot under the OpenTelemetry SDK, profiled by spanprof. The profiler needs the start and the
 * filter. OTEL_* variables select the destination.
 */
@SpringBootApplication
public class Application {
    public static void main(String[] words) {
        Spanprof.start();
        SpringApplication.run(Application.class, words);
    }

    /** Samples of a request carry its method and its route. */
    @Bean
    FilterRegistrationBean<SpanprofFilter> labels() {
        FilterRegistrationBean<SpanprofFilter> filter = new FilterRegistrationBean<>(new SpanprofFilter());
        filter.setOrder(2);
        return filter;
    }

    /** A span for each request: its samples are linked to it. */
    @Bean
    FilterRegistrationBean<Tracing> spans() {
        FilterRegistrationBean<Tracing> filter = new FilterRegistrationBean<>(new Tracing());
        filter.addUrlPatterns("/cart/*", "/search", "/report");
        filter.setOrder(1);
        return filter;
    }
}
