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
 * Samples of a request carry its method and route, and, where no span of this process is active, the span that its
 * {@code traceparent} names. For servers of Java EE and Jakarta EE 8; see {@link SpanprofFilter}.
 */
public final class JavaxSpanprofFilter implements Filter {
    /** For containers that make filters by their class. */
    public JavaxSpanprofFilter() {}

    /** Servers older than Servlet 4.0 need one. */
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
            chain.doFilter(new Watched(http, scope), response);
        }
    }

    /** As {@link #init}. */
    @Override
    public void destroy() {}

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
