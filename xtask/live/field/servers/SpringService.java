import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/** A Spring Boot service without a reference to spanprof: the profiler is an extension of OpenTelemetry's agent. */
@SpringBootConfiguration
@EnableAutoConfiguration
@Import(SpringService.Pages.class)
public class SpringService {
    public static void main(String[] words) {
        SpringApplication.run(SpringService.class, words);
    }

    /** Responses depend only on the path. */
    @RestController
    static class Pages {
        @GetMapping("/cart/{number}")
        String cart(@PathVariable("number") int number) {
            return fieldCart(number);
        }

        @GetMapping("/search")
        String search() {
            return fieldSearch();
        }

        @GetMapping("/later/{number}")
        String later(@PathVariable("number") int number) {
            return fieldLater(number);
        }
    }

    static String fieldCart(int number) {
        Work.fieldWork(30);
        return "cart " + number + ": " + number * number;
    }

    static String fieldSearch() {
        Work.fieldWork(30);
        return "search";
    }

    static String fieldLater(int number) {
        Work.fieldWork(30);
        return "later " + number;
    }
}
