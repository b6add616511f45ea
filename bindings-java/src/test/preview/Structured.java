import io.spanprof.Scope;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.util.Map;
import java.util.concurrent.StructuredTaskScope;
import java.util.concurrent.StructuredTaskScope.Joiner;

/** A request whose subtasks run on virtual threads of a scope, with a scoped value. */
public final class Structured {
    private static final ScopedValue<String> TENANT = ScopedValue.newInstance();
    private static volatile double sum;

    private Structured() {}

    static void burn() {
        double roots = 0;
        for (int i = 0; i < 40_000_000; i++) {
            roots += Math.sqrt(i + roots);
        }
        sum = roots;
    }

    static boolean price() {
        burn();
        return true;
    }

    static boolean stock() {
        burn();
        return true;
    }

    static boolean plain() {
        burn();
        return true;
    }

    private static void request() throws InterruptedException {
        try (Scope labels = Spanprof.tag(Map.of("endpoint", "/cart", "tenant", TENANT.get()));
                var every = StructuredTaskScope.open(
                        Joiner.<Boolean>awaitAllSuccessfulOrThrow(),
                        settings -> settings.withThreadFactory(
                                Spanprof.wrapThreadFactory(Thread.ofVirtual().factory())));
                var some = StructuredTaskScope.open(Joiner.<Boolean>awaitAllSuccessfulOrThrow())) {
            every.fork(Structured::price);
            some.fork(Spanprof.wrap(Structured::stock));
            some.fork(Structured::plain);
            some.join();
            every.join();
        }
    }

    public static void main(String[] args) throws Exception {
        Spanprof.start(SpanprofConfig.builder()
                .serviceName("structured").sampleRate(250).fileDirectory(args[0]).inheritThreads(args.length > 1).build());
        ScopedValue.where(TENANT, "acme").call(() -> {
            request();
            return null;
        });
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
