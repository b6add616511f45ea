package shop;

import io.spanprof.Spanprof;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;

/** The pages of the shop. */
@RestController
class Pages {
    /** Its threads run tasks under the labels of the submitting request. */
    private final ExecutorService searchers = Spanprof.wrap(Executors.newFixedThreadPool(2));

    /** The label is the kind of customer. */
    @GetMapping("/cart/{size}")
    Map<String, Object> cart(@PathVariable int size) {
        String customer = size > 10 ? "returning" : "new";
        return Spanprof.tagWrapper(Map.of("customer", customer), () -> Map.of("total", Shop.priceCart(size)));
    }

    /** Two halves at once, on threads of a pool: each keeps the request's labels and its span. */
    @GetMapping("/search")
    Map<String, Object> search(@RequestParam String words) {
        CompletableFuture<Integer> first = CompletableFuture.supplyAsync(() -> Shop.search(words, 0), searchers);
        CompletableFuture<Integer> second = CompletableFuture.supplyAsync(() -> Shop.search(words, 200), searchers);
        return Map.of("best", first.thenCombine(second, Math::max).join());
    }

    @GetMapping("/report")
    Map<String, Object> report(@RequestParam(defaultValue = "1000") int rows) {
        return Map.of("digest", Shop.renderReport(rows));
    }

    @GetMapping("/health")
    Map<String, Object> health() {
        return Map.of("status", "ok");
    }

    /** Statistics of the profiler. */
    @GetMapping("/profiler")
    Map<String, Object> profiler() {
        return Spanprof.stats();
    }
}
