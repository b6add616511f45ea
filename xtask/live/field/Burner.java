/** Prints a result, after CPU time in {@code fieldWork}. */
final class Burner {
    private Burner() {}

    public static void main(String[] words) {
        Profiled.start();
        Profiled.fieldWork(1000);
        System.out.println(java.util.stream.LongStream.range(0, 100_000).sum());
    }
}
