package io.spanprof.programs;

import io.spanprof.Labels;
import io.spanprof.PprofHandler;
import io.spanprof.Scope;
import io.spanprof.SpanLink;
import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import io.spanprof.pyroscope.Config;
import io.spanprof.pyroscope.PyroscopeAgent;
import java.io.IOException;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.concurrent.ForkJoinPool;
import java.util.function.Supplier;

/** A program without any permission under a security policy: calls the API before, during and after the profile. */
public final class Untrusted {
    private Untrusted() {}

    private static void print(String name, Supplier<Object> call) {
        System.out.println(name + " " + call.get());
    }

    private static void callAll(String when, String directory) {
        print(when + "_running", Spanprof::isRunning);
        print(when + "_stats", () -> !Spanprof.stats().isEmpty());
        print(when + "_flush", Spanprof::flush);
        print(when + "_update", () -> Spanprof.update(SpanprofConfig.builder().sampleRate(200).build()));
        print(when + "_tag", () -> Spanprof.tagWrapper(Collections.singletonMap("a", "b"), () -> 42));
        try (Scope scope = Spanprof.tag(Labels.of("a", "b"))) {
            SpanLink.activate("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331").restore();
        }
        Spanprof.wrap(ForkJoinPool.commonPool()).execute(() -> {});
        Spanprof.wrap(() -> {}).run();
        PprofHandler.enable();
        PprofHandler.respond("GET", "/debug/pprof", "/cmdline", "", Collections.emptyList(), new byte[0]);
        try {
            Spanprof.capture(() -> 42).save(Paths.get(directory, "capture.pb.gz"));
            throw new AssertionError("the program may write no file");
        } catch (IOException denied) {
            print(when + "_capture", () -> "denied");
        }
    }

    public static void main(String[] args) {
        callAll("before", args[0]);
        if (args[1].equals("pyroscope")) {
            PyroscopeAgent.start(new Config.Builder().setTmpDir("/tmp").setApplicationName("untrusted").build());
        } else {
            print("start", () -> Spanprof.start(SpanprofConfig.builder().fileDirectory(args[0]).build()));
        }
        callAll("during", args[0]);
        print("stop", Spanprof::stop);
        callAll("after", args[0]);
    }
}
