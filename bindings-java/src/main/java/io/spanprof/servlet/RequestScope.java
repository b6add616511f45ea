package io.spanprof.servlet;

import io.spanprof.Scope;
import io.spanprof.SpanLink;
import io.spanprof.Spanprof;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What a request says about itself, on the thread that serves it: both filters' part that knows no servlets. */
final class RequestScope implements AutoCloseable {
    /** Under this name Spring tells which of its routes a request took. */
    private static final String SPRING_ROUTE = "org.springframework.web.servlet.HandlerMapping.bestMatchingPattern";

    private static final Set<String> METHODS =
            Set.of("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE");
    /** Patterns of servlets that serve everything, and have routes of their own. */
    private static final Set<String> EVERYTHING = Set.of("", "/", "/*");
    private static final Pattern TRACEPARENT =
            Pattern.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}.*");

    private final Thread thread = Thread.currentThread();
    private final String prefix;
    private final Scope scope;
    private boolean isOpen = true;

    private RequestScope(String prefix, Scope scope) {
        this.prefix = prefix;
        this.scope = scope;
    }

    /**
     * Method and route as labels; the ids of the caller's trace when no span of this process is active.
     *
     * @param prefix the application's own path, before every route
     * @param route the pattern that the server matched
     */
    static RequestScope open(String method, String prefix, String route, String traceparent) {
        Map<String, String> labels = new HashMap<>();
        if (method != null) {
            labels.put("http.request.method", METHODS.contains(method) ? method : "_OTHER");
        }
        String path = prefix == null ? "" : prefix;
        if (route != null && !EVERYTHING.contains(route)) {
            labels.put("http.route", path + route);
        }
        Matcher caller = TRACEPARENT.matcher(traceparent == null ? "" : traceparent);
        if (caller.matches() && !SpanLink.isActive()) {
            labels.put("trace_id", caller.group(1));
            labels.put("span_id", caller.group(2));
        }
        return new RequestScope(path, Spanprof.tag(labels));
    }

    /**
     * An attribute of the request was set: where it is a framework's route, that is the label from here on. The request's
     * own scope, or any opened meanwhile, puts back what was there before.
     */
    @SuppressWarnings("resource")
    void attribute(String name, Object value) {
        if (isOpen && SPRING_ROUTE.equals(name) && value != null && thread == Thread.currentThread()) {
            Spanprof.tag(Map.of("http.route", prefix + value));
        }
    }

    @Override
    public void close() {
        isOpen = false;
        scope.close();
    }
}
