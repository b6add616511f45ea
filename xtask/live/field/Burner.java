/** Prints a result after CPU time in {@code fieldWork}: one second, or the number in the first argument. */
final class Burner {
    private Burner() {}

    public static void main(String[] words) {
        Profiled.start();
        Work.fieldWork((long) ((words.length > 0 ? Double.parseDouble(words[0]) : 1) * 1000));
        System.out.println(java.util.stream.LongStream.range(0, 100_000).sum());
    }
}
