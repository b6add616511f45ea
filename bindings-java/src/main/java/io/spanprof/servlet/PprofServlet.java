package io.spanprof.servlet;

import io.spanprof.PprofHandler;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Serves profiles to {@code go tool pprof} and scrapers: map it to {@code /debug/pprof/*}, or to any other path that ends
 * with {@code /*}. Mapped to {@code /debug/spanprof/*} too, it has the control operations. A request for a profile occupies
 * a thread of the server for its whole length. Access is the server's matter, unless {@code pullToken} is set. For servers
 * with {@code jakarta.servlet}. The build makes the class with the prefix {@code Javax}, for older servers, from this source.
 */
public final class PprofServlet extends HttpServlet {
    private static final long serialVersionUID = 1L;

    /** From here on, allocations and lock waits are summed up for requests without {@code seconds}. */
    public PprofServlet() {
        PprofHandler.enable();
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
        List<String> headers = new ArrayList<>();
        for (String name : Collections.list(request.getHeaderNames())) {
            headers.addAll(Arrays.asList(name, request.getHeader(name)));
        }
        byte[] body = new byte[PprofHandler.MAX_BODY_BYTES + 1];
        int length = 0;
        for (int count = 0; count >= 0 && length < body.length; length += Math.max(0, count)) {
            count = request.getInputStream().read(body, length, body.length - length);
        }
        PprofHandler.Response answer = PprofHandler.respond(request.getMethod(),
                request.getContextPath() + request.getServletPath(), request.getPathInfo(), request.getQueryString(),
                headers, Arrays.copyOf(body, length));
        response.setStatus(answer.status());
        for (int i = 0; i + 1 < answer.headers().size(); i += 2) {
            response.setHeader(answer.headers().get(i), answer.headers().get(i + 1));
        }
        response.setContentLength(answer.body().length);
        if (!request.getMethod().equals("HEAD")) {
            response.getOutputStream().write(answer.body());
        }
    }
}
