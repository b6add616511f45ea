import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Attribution of samples to requests by label. Each kind of request works in its own method, so the stack identifies it. It
 * waits in between, and may continue on another thread.
 *
 * <pre>LabelShareRun PROFILER platform|virtual SECONDS FOLDER</pre>
 */
final class LabelShareRun {
    private static final int RATE_HZ = 250;
    private static final List<String> KINDS = List.of("rum", "milk", "coffee");
    private static final String PACKAGE = "LabelShareRun.";

    private LabelShareRun() {}

    /** A request of a kind, labelled by the functions of one profiler. */
    private interface Labelling {
        double request(String kind, Callable<Double> work) throws Exception;

        boolean isRight(String kind, Map<String, String> labels);
    }

    private static Labelling labelling(String profiler) {
        boolean isOurs = profiler.equals("spanprof");
        return new Labelling() {
            @Override
            public double request(String kind, Callable<Double> work) throws Exception {
                return isOurs ? OwnLabels.request(kind, work) : PyroscopeLabels.request(kind, work);
            }

            @Override
            public boolean isRight(String kind, Map<String, String> labels) {
                return isOurs ? OwnLabels.isRight(kind, labels) : PyroscopeLabels.isRight(kind, labels);
            }
        };
    }

    static double rum() {
        return Work.half(60_000);
    }

    static double milk() {
        return Work.third(60_000);
    }

    static double coffee() {
        return Work.fifth(60_000);
    }

    private static double burn(String kind) {
        return switch (kind) {
            case "rum" -> rum();
            case "milk" -> milk();
            default -> coffee();
        };
    }

    private static double serve(String kind) {
        double sum = 0;
        for (int step = 0; step < 4; step++) {
            sum += burn(kind);
            Threads.giveWayAfter(step);
        }
        return sum;
    }

    public static void main(String[] words) throws Exception {
        Profiler profiler = Profiler.named(words[0]);
        Labelling labelling = labelling(words[0]);
        boolean isVirtual = words[1].equals("virtual");
        profiler.startKeeping(RATE_HZ, Files.createDirectories(Path.of(words[3])));
        ExecutorService executor = isVirtual ? Threads.virtual() : Executors.newFixedThreadPool(8);
        long until = System.nanoTime() + (long) (1e9 * Double.parseDouble(words[2]));
        while (System.nanoTime() < until) {
            List<Future<Double>> answers = new ArrayList<>();
            for (int number = 0; number < (isVirtual ? 300 : 24); number++) {
                String kind = KINDS.get(number % KINDS.size());
                answers.add(executor.submit(() -> labelling.request(kind, () -> serve(kind))));
            }
            for (Future<Double> answer : answers) {
                Work.sink += answer.get();
            }
        }
        judge(profiler.seen(), labelling);
        System.exit(0);
    }

    private static void judge(List<Seen> seen, Labelling labelling) {
        long right = 0;
        long without = 0;
        long wrong = 0;
        long broken = 0;
        for (Seen one : seen) {
            String kind = KINDS.stream().filter(name -> one.has(PACKAGE + name)).findFirst().orElse(null);
            if (kind == null) {
                continue;
            }
            broken += one.isBroken() || one.has("[frames_in_heap]") ? one.count() : 0;
            if (labelling.isRight(kind, one.labels())) {
                right += one.count();
            } else if (one.labels().isEmpty() || !one.labels().containsKey("route")) {
                without += one.count();
            } else {
                wrong += one.count();
                System.err.println("another request's label: " + one);
            }
        }
        Answer.say("right", right);
        Answer.say("without", without);
        Answer.say("wrong", wrong);
        Answer.say("ended", broken);
    }
}
