package io.spanprof.servlet;

import java.io.IOException;
import javax.servlet.Filter;
import javax.servlet.FilterChain;
import javax.servlet.FilterConfig;
import javax.servlet.ServletException;
import javax.servlet.ServletRequest;
import javax.servlet.ServletResponse;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletRequestWrapper;

/**
 * Adds method and route to the samples of a request and, if no span of this process is active, the span of its {@code
 * traceparent}. For servers of Java EE and Jakarta EE 8; see {@link SpanprofFilter}.
 */
public final class JavaxSpanprofFilter implements Filter {
    /** For containers that create filters by class. */
    public JavaxSpanprofFilter() {}

    /** Required before Servlet 4.0. */
    @Override
    public void init(FilterConfig settings) {}

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

    /** As {@link #init}. */
    @Override
    public void destroy() {}

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
