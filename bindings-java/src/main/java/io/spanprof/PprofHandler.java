package io.spanprof;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Answers requests for {@code /debug/pprof} that a server of the program received. For bridges to servers, such as {@link
 * io.spanprof.servlet.PprofServlet}; the key {@code pull} needs none.
 */
public final class PprofHandler {
    /** Limit of a request's body; a longer one is refused, so that one more byte needs to be read. */
    public static final int MAX_BODY_BYTES = 65536;

    /** Last part of the path of the control operations. */
    private static final String CONTROL = "/spanprof";

    private PprofHandler() {}

    /** A response. */
    public static final class Response {
        private final int status;
        private final List<String> headers;
        private final byte[] body;

        Response(int status, List<String> headers, byte[] body) {
            this.status = status;
            this.headers = headers;
            this.body = body;
        }

        /** Its status code. */
        public int status() {
            return status;
        }

        /** Alternating names and values. */
        public List<String> headers() {
            return headers;
        }

        /** Its content. */
        public byte[] body() {
            return body;
        }
    }

    /** From here on, allocations and lock waits are summed up for requests without {@code seconds}. */
    public static void enable() {
        if (NativeLibrary.isReady()) {
            Native.servePulls();
        }
    }

    /**
     * Answers a request; blocks for the time that it requests.
     *
     * @param mount path of the handler, with the application's path in front. If it ends with {@code /spanprof}, the request
     *     is for a control operation
     * @param rest path after it; null or empty if there is none
     * @param query query without the question mark; may be null
     * @param headers alternating names and values
     * @param body at most {@link #MAX_BODY_BYTES}
     */
    public static Response respond(
            String method, String mount, String rest, String query, List<String> headers, byte[] body) {
        String path = mount;
        String below = rest == null ? "" : rest;
        if (path.endsWith(CONTROL)) {
            path = path.substring(0, path.length() - CONTROL.length());
            below = CONTROL + below;
        }
        byte[] answer = null;
        if (NativeLibrary.isLoaded()) {
            List<String> head = new ArrayList<>(Arrays.asList(method, path, below, query == null ? "" : query));
            head.addAll(headers);
            answer = Native.pull(Packed.pack(head), body);
        }
        if (answer == null) {
            return new Response(503, Collections.emptyList(), "the profiler is not running\n".getBytes(StandardCharsets.UTF_8));
        }
        int headEnd = Integer.BYTES + ByteBuffer.wrap(answer).order(ByteOrder.BIG_ENDIAN).getInt();
        List<String> head = Packed.unpack(Arrays.copyOfRange(answer, Integer.BYTES, headEnd));
        byte[] content = Arrays.copyOfRange(answer, headEnd, answer.length);
        return new Response(Integer.parseInt(head.get(0)), head.subList(1, head.size()), content);
    }
}
