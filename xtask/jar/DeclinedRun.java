/** A program of Java 8, for a VM of it that the profiler does not support. */
public class DeclinedRun {
    public static void main(String[] words) {
        System.out.println("declined run: ended");
    }
}
