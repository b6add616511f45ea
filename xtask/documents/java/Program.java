import java.util.concurrent.CompletableFuture;

/** What the code blocks of the documents use of their program. */
class Program {
    record Cart() {}

    record Price() {}

    record Receipt() {}

    Object request;
    Cart cart;
    CompletableFuture<Cart> future;

    Receipt handle(Object request) {
        return new Receipt();
    }

    Price price(Cart cart) {
        return new Price();
    }

    void nightly() {}
}
