package shop;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The work of a small shop: these methods appear in its profile. */
final class Shop {
    private record Article(String name, int price) {}

    private static final List<Article> CATALOGUE =
            IntStream.range(0, 400).mapToObj(number -> new Article("article " + number, number * 17 % 90 + 1)).toList();

    private Shop() {}

    static int priceCart(int size) {
        int total = 0;
        for (int at = 0; at < size * 2000; at++) {
            Article article = CATALOGUE.get(at * 7919 % CATALOGUE.size());
            total += article.price() + article.toString().length() % 2;
        }
        return total;
    }

    static int search(String words, int first) {
        int best = 0;
        for (Article article : CATALOGUE.subList(first, first + 200)) {
            best = Math.max(best, similarity(words, article.name()));
        }
        return best;
    }

    private static int similarity(String left, String right) {
        int sum = 0;
        for (int letter : (left + right).chars().distinct().toArray()) {
            sum += left.split(Character.toString(letter)).length * right.split(Character.toString(letter)).length;
        }
        return sum;
    }

    static String renderReport(int rows) {
        MessageDigest digest = sha256();
        for (int row = 0; row < rows; row++) {
            int factor = row;
            String squares = IntStream.range(0, 20).mapToObj(number -> String.valueOf(factor * number))
                    .collect(Collectors.joining(",", "[", "]"));
            digest.update(("{\"row\":" + row + ",\"squares\":" + squares + "}").getBytes(StandardCharsets.UTF_8));
        }
        return HexFormat.of().formatHex(digest.digest());
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
