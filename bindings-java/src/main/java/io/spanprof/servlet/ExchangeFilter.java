package io.spanprof.servlet;

import com.sun.net.httpserver.Filter;
import com.sun.net.httpserver.HttpExchange;
import java.io.IOException;

/**
 * As {@link SpanprofFilter}, for the JDK's server: {@code context.getFilters().add(new ExchangeFilter())}. The route of a request is the
 * path of its context.
 */
public final class ExchangeFilter extends Filter {
    /** For programs that add it themselves. */
    public ExchangeFilter() {}

    @Override
    public String description() {
        return "spanprof";
    }

    @Override
    public void doFilter(HttpExchange exchange, Chain chain) throws IOException {
        RequestScope opened = RequestScope.open(exchange.getRequestMethod(), "", exchange.getHttpContext().getPath(),
                exchange.getRequestHeaders().getFirst("traceparent"), null);
        boolean hasReturned = false;
        try (RequestScope scope = opened) {
            chain.doFilter(exchange);
            hasReturned = true;
        } finally {
            opened.end(!hasReturned || exchange.getResponseCode() >= 500);
        }
    }
}
