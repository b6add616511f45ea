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
 * Samples of a request carry its method and route, and, where no span of this process is active, the span that its
 * {@code traceparent} names. For servers of Jakarta EE 9 and later; see {@link JavaxSpanprofFilter}.
 */
public final class SpanprofFilter implements Filter {
    /** For containers that make filters by their class. */
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
            chain.doFilter(new Watched(http, scope), response);
        }
    }

    private static String route(HttpServletRequest request) {
        try {
            return request.getHttpServletMapping().getPattern();
        } catch (RuntimeException | LinkageError unknown) {
            // The container is older than this question.
            return null;
        }
    }

    /** The request as it is; frameworks write down their route in it. */
    private static final class Watched extends HttpServletRequestWrapper {
        private final RequestScope scope;

        Watched(HttpServletRequest request, RequestScope scope) {
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
