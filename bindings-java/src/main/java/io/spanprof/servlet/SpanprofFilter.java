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
        if (!(request instanceof HttpServletRequest http)) {
            chain.doFilter(request, response);
            return;
        }
        RequestScope scope = begin(http);
        boolean hasReturned = false;
        try (scope) {
            chain.doFilter(new RouteRequest(http, scope), response);
            hasReturned = true;
        } finally {
            end(scope, http, response, hasReturned);
        }
    }

    /**
     * The filter's work without a filter, for servers that the agent found: begins the work of a request, which the result ends with an
     * exception or null. Null for another than the first filter or servlet of a dispatch; called by name.
     */
    static Consumer<Throwable> begin(Object request, Object response) {
        if (!(request instanceof HttpServletRequest http) || !(response instanceof ServletResponse answer)
                || http.getAttribute(RequestScope.ATTRIBUTE) instanceof RequestScope first && first.isOpenHere()) {
            return null;
        }
        RequestScope scope = begin(http);
        http.setAttribute(RequestScope.ATTRIBUTE, scope);
        return thrown -> {
            try (scope) {
                scope.attribute(RequestScope.SPRING_ROUTE, http.getAttribute(RequestScope.SPRING_ROUTE));
            }
            end(scope, http, answer, thrown == null);
        };
    }

    private static RequestScope begin(HttpServletRequest request) {
        RequestScope first = request.getAttribute(RequestScope.ATTRIBUTE) instanceof RequestScope known ? known : null;
        RequestScope scope = RequestScope.open(
                request.getMethod(), request.getContextPath(), route(request), request.getHeader("traceparent"), first);
        if (scope.reportsEnd()) {
            request.setAttribute(RequestScope.ATTRIBUTE, scope);
        }
        return scope;
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
        return response instanceof HttpServletResponse http && http.getStatus() >= 500;
    }

    /** Reports the end of an asynchronous request. */
    private record EndListener(RequestScope scope, ServletResponse response) implements AsyncListener {
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
