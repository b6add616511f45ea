package io.spanprof.servlet;

import io.spanprof.Scope;
import io.spanprof.SpanLink;
import io.spanprof.Spanprof;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The scope of a request on its thread: the part of both filters that is independent of the servlet API. */
final class RequestScope implements AutoCloseable {
    /** The attribute in which Spring stores the matched route. */
    private static final String SPRING_ROUTE = "org.springframework.web.servlet.HandlerMapping.bestMatchingPattern";

    private static final Set<String> METHODS =
            Set.of("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE");
    /** Catch-all patterns of servlets that route requests themselves. */
    private static final Set<String> CATCH_ALL = Set.of("", "/", "/*");
    private static final Pattern TRACEPARENT =
            Pattern.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}.*");

    private final Thread thread = Thread.currentThread();
    private final String contextPath;
    private final Scope scope;
    private boolean isOpen = true;

    private RequestScope(String contextPath, Scope scope) {
        this.contextPath = contextPath;
        this.scope = scope;
    }

    /**
     * Opens a scope with method and route as labels, and the caller's trace and span ids if no span of this process is
     * active.
     *
     * @param contextPath the application's path, the prefix of every route
     * @param route the pattern that the server matched
     */
    static RequestScope open(String method, String contextPath, String route, String traceparent) {
        Map<String, String> labels = new HashMap<>();
        if (method != null) {
            labels.put("http.request.method", METHODS.contains(method) ? method : "_OTHER");
        }
        String path = contextPath == null ? "" : contextPath;
        if (route != null && !CATCH_ALL.contains(route)) {
            labels.put("http.route", path + route);
        }
        Matcher traceparentMatch = TRACEPARENT.matcher(traceparent == null ? "" : traceparent);
        if (traceparentMatch.matches() && !SpanLink.isActive()) {
            labels.put("trace_id", traceparentMatch.group(1));
            labels.put("span_id", traceparentMatch.group(2));
        }
        return new RequestScope(path, Spanprof.tag(labels));
    }

    /**
     * A request attribute was set: a framework's route replaces the route label from here on. Closing the request's scope,
     * or one opened in between, restores the previous labels.
     */
    @SuppressWarnings("resource")
    void attribute(String name, Object value) {
        if (isOpen && SPRING_ROUTE.equals(name) && value != null && thread == Thread.currentThread()) {
            Spanprof.tag(Map.of("http.route", contextPath + value));
        }
    }

    @Override
    public void close() {
        isOpen = false;
        scope.close();
    }
}
