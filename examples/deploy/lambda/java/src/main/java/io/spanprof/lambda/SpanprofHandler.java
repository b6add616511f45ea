package io.spanprof.lambda;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import com.amazonaws.services.lambda.runtime.RequestStreamHandler;
import com.amazonaws.services.lambda.runtime.serialization.PojoSerializer;
import com.amazonaws.services.lambda.runtime.serialization.events.LambdaEventSerializers;
import com.amazonaws.services.lambda.runtime.serialization.factories.JacksonFactory;
import io.spanprof.Spanprof;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.time.Duration;
import java.util.Arrays;

/**
 * The handler of the layer: calls the function's own one, then sends the profile. Lambda freezes the process as soon as the
 * response is sent, until the next invocation: what is not sent before may never be. The agent has started the profiler.
 */
public final class SpanprofHandler implements RequestStreamHandler {
    /** A receiver that does not answer delays the response by at most this. */
    private static final long LONGEST_FLUSH_MS = 2000;
    /** Time that the flush leaves of the function's timeout. */
    private static final long MARGIN_MS = 200;

    private final RequestStreamHandler original = of(System.getenv("ORIGINAL_HANDLER"));

    @Override
    public void handleRequest(InputStream input, OutputStream output, Context context) throws IOException {
        try {
            original.handleRequest(input, output, context);
        } finally {
            long left = context.getRemainingTimeInMillis() - MARGIN_MS;
            Spanprof.flush(Duration.ofMillis(Math.max(0, Math.min(LONGEST_FLUSH_MS, left))));
        }
    }

    /** The handler {@code package.Class} or {@code package.Class::handleRequest}. */
    private static RequestStreamHandler of(String name) {
        Object handler;
        try {
            handler = Class.forName(name.split("::")[0], true, Thread.currentThread().getContextClassLoader())
                    .getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("cannot make the handler " + name, error);
        }
        if (handler instanceof RequestStreamHandler stream) return stream;
        if (handler instanceof RequestHandler<?, ?> typed && !name.matches(".*::(?!handleRequest$).*")) return streaming(typed);
        throw new IllegalArgumentException("the handler " + name + " is neither a RequestHandler nor a RequestStreamHandler;"
                + " call Spanprof.flush at the end of its method, and set _HANDLER to it");
    }

    /** Reads the event and writes the result as the runtime does for such a handler. */
    @SuppressWarnings("unchecked")
    private static <I, O> RequestStreamHandler streaming(RequestHandler<I, O> handler) {
        Method method = Arrays.stream(handler.getClass().getMethods())
                .filter(it -> it.getName().equals("handleRequest") && it.getParameterCount() == 2 && !it.isBridge())
                .findFirst().orElseThrow();
        PojoSerializer<Object> events = serializer(method.getGenericParameterTypes()[0]);
        PojoSerializer<Object> results = serializer(method.getGenericReturnType());
        return (input, output, context) -> results.toJson(handler.handleRequest((I) events.fromJson(input), context), output);
    }

    @SuppressWarnings("unchecked")
    private static PojoSerializer<Object> serializer(Type type) {
        if (type instanceof Class<?> event && LambdaEventSerializers.isLambdaSupportedEvent(event.getName())) {
            return (PojoSerializer<Object>) LambdaEventSerializers.serializerFor(event, event.getClassLoader());
        }
        return JacksonFactory.getInstance().getSerializer(type);
    }
}
