package io.spanprof.servlet;

import io.spanprof.Scope;
import io.spanprof.SpanLink;
import io.spanprof.Spanprof;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The scope of a request on its thread: the part of both filters that is independent of the servlet API. */
final class RequestScope implements AutoCloseable {
    /** The attribute in which Spring stores the matched route. */
    static final String SPRING_ROUTE = "org.springframework.web.servlet.HandlerMapping.bestMatchingPattern";

    /** Request attribute with the scope of the first dispatch. */
    static final String ATTRIBUTE = "io.spanprof.servlet.RequestScope";

    private static final Set<String> METHODS =
            new HashSet<>(Arrays.asList("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"));
    /** Catch-all patterns of servlets that route requests themselves. */
    private static final Set<String> CATCH_ALL = new HashSet<>(Arrays.asList("", "/", "/*"));
    private static final Pattern TRACEPARENT =
            Pattern.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}.*");

    private final Thread thread = Thread.currentThread();
    private final String contextPath;
    private final String method;
    private final SpanLink before = SpanLink.here();
    private final Scope scope;
    /** Local root of the request's context; 0 if its end is not reported. */
    private final long request;
    private final long beginNanos = System.nanoTime();
    private final AtomicBoolean isEnded;
    private volatile String route;
    private boolean isOpen = true;

    private RequestScope(Map<String, String> labels, String contextPath, RequestScope dispatched) {
        this.contextPath = contextPath;
        method = labels.getOrDefault("http.request.method", "");
        route = labels.getOrDefault("http.route", "");
        // An asynchronous or forwarded dispatch continues its request.
        request = dispatched == null
                ? SpanLink.beginRequest(labels.getOrDefault("trace_id", ""), "")
                : dispatched.request;
        isEnded = new AtomicBoolean(dispatched != null || request == 0);
        scope = Spanprof.tag(labels);
        if (request != 0) {
            SpanLink.here().withLocalRoot(request).restore();
        }
    }

    /**
     * Opens a scope with method and route as labels, and the caller's trace if no span of this process is
     * active.
     *
     * @param contextPath the application's path, the prefix of every route
     * @param route the pattern that the server matched
     * @param dispatched the scope of the request that this dispatch continues; null for a new request
     */
    static RequestScope open(
            String method, String contextPath, String route, String traceparent, RequestScope dispatched) {
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
        }
        return new RequestScope(labels, path, dispatched);
    }

    /** Whether the calling thread is inside of it. */
    boolean isOpenHere() {
        return isOpen && thread == Thread.currentThread();
    }

    /** Whether {@link #end} reports. */
    boolean reportsEnd() {
        return !isEnded.get();
    }

    /** The request ended, on any thread: reports it once. */
    void end(boolean isError) {
        if (isEnded.compareAndSet(false, true)) {
            SpanLink.endRequest(request, System.nanoTime() - beginNanos, (method + " " + route).trim(), isError);
        }
    }

    /**
     * A request attribute was set: a framework's route replaces the route label from here on. Closing the request's scope,
     * or one opened in between, restores the previous labels.
     */
    @SuppressWarnings("resource")
    void attribute(String name, Object value) {
        if (!SPRING_ROUTE.equals(name) || value == null) {
            return;
        }
        route = contextPath + value;
        if (isOpenHere()) {
            Spanprof.tag(Collections.singletonMap("http.route", route));
        }
    }

    @Override
    public void close() {
        isOpen = false;
        if (request != 0) {
            before.restore();
        }
        SpanLink.close(scope);
    }
}
