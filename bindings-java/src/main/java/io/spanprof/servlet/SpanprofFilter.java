package io.spanprof.servlet;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.FilterConfig;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.function.Consumer;

/**
 * Adds method and route to the samples of a request and, if no span of this process is active, the span of its {@code
 * traceparent}. Reports the end of each request. For servers with {@code jakarta.servlet}. The build makes the class with the
 * prefix {@code Javax}, for older servers, from this source.
 */
public final class SpanprofFilter implements Filter {
    /** For containers that create filters by class. */
    public SpanprofFilter() {}

    /** Required before Servlet 4.0. */
    @Override
    public void init(FilterConfig settings) {}

    /** As {@link #init}. */
    @Override
    public void destroy() {}

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest)) {
            chain.doFilter(request, response);
            return;
        }
        HttpServletRequest http = (HttpServletRequest) request;
        RequestScope opened = begin(http);
        boolean hasReturned = false;
        try (RequestScope scope = opened) {
            chain.doFilter(new RouteRequest(http, scope), response);
            hasReturned = true;
        } finally {
            end(opened, http, response, hasReturned);
        }
    }

    /**
     * The filter's work without a filter, for servers that the agent found: begins the work of a request, which the result ends with an
     * exception or null. Null for another than the first filter or servlet of a dispatch; called by name.
     */
    static Consumer<Throwable> begin(Object request, Object response) {
        if (!(request instanceof HttpServletRequest) || !(response instanceof ServletResponse)) {
            return null;
        }
        HttpServletRequest http = (HttpServletRequest) request;
        RequestScope first = scopeOf(http);
        if (first != null && first.isOpenHere()) {
            return null;
        }
        RequestScope opened = begin(http);
        http.setAttribute(RequestScope.ATTRIBUTE, opened);
        return thrown -> {
            try (RequestScope scope = opened) {
                scope.attribute(RequestScope.SPRING_ROUTE, http.getAttribute(RequestScope.SPRING_ROUTE));
            }
            end(opened, http, (ServletResponse) response, thrown == null);
        };
    }

    private static RequestScope begin(HttpServletRequest request) {
        RequestScope scope = RequestScope.open(
                request.getMethod(),
                request.getContextPath(),
                route(request),
                request.getHeader("traceparent"),
                scopeOf(request));
        if (scope.reportsEnd()) {
            request.setAttribute(RequestScope.ATTRIBUTE, scope);
        }
        return scope;
    }

    /** The scope of the request's first filter; null if there is none. */
    private static RequestScope scopeOf(HttpServletRequest request) {
        Object known = request.getAttribute(RequestScope.ATTRIBUTE);
        return known instanceof RequestScope ? (RequestScope) known : null;
    }

    /** Reports the end of the request, now or when its asynchronous work is complete. */
    private static void end(RequestScope scope, HttpServletRequest request, ServletResponse response, boolean hasReturned) {
        if (!scope.reportsEnd()) {
            return;
        }
        if (hasReturned && request.isAsyncStarted()) {
            try {
                request.getAsyncContext().addListener(new EndListener(scope, response));
                return;
            } catch (IllegalStateException complete) {
                // The work is complete already.
            }
        }
        scope.end(!hasReturned || isError(response));
    }

    private static boolean isError(ServletResponse response) {
        return response instanceof HttpServletResponse && ((HttpServletResponse) response).getStatus() >= 500;
    }

    /** Reports the end of an asynchronous request. */
    private static final class EndListener implements AsyncListener {
        private final RequestScope scope;
        private final ServletResponse response;

        private EndListener(RequestScope scope, ServletResponse response) {
            this.scope = scope;
            this.response = response;
        }

        @Override
        public void onComplete(AsyncEvent event) {
            scope.end(isError(response));
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            scope.end(true);
        }

        @Override
        public void onError(AsyncEvent event) {
            scope.end(true);
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this);
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
