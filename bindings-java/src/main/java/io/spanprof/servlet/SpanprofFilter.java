package io.spanprof.servlet;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import java.io.IOException;

/**
 * Adds method and route to the samples of a request and, if no span of this process is active, the span of its {@code
 * traceparent}. For servers of Jakarta EE 9 and later; see {@link JavaxSpanprofFilter}.
 */
public final class SpanprofFilter implements Filter {
    /** For containers that create filters by class. */
    public SpanprofFilter() {}

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest http)) {
            chain.doFilter(request, response);
            return;
        }
        try (RequestScope scope = RequestScope.open(
                http.getMethod(), http.getContextPath(), route(http), http.getHeader("traceparent"))) {
            chain.doFilter(new RouteRequest(http, scope), response);
        }
    }

    private static String route(HttpServletRequest request) {
        try {
            return request.getHttpServletMapping().getPattern();
        } catch (RuntimeException | LinkageError unknown) {
            // The container does not support {@code getHttpServletMapping}.
            return null;
        }
    }

    /** The unchanged request; observes the attribute in which frameworks store their route. */
    private static final class RouteRequest extends HttpServletRequestWrapper {
        private final RequestScope scope;

        RouteRequest(HttpServletRequest request, RequestScope scope) {
            super(request);
            this.scope = scope;
        }

        @Override
        public void setAttribute(String name, Object value) {
            super.setAttribute(name, value);
            scope.attribute(name, value);
        }
    }
}
