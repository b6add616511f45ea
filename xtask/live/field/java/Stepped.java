/** Runs a method repeatedly, in which {@link Debugger} stops and steps. Prints a result. */
final class Stepped {
    private Stepped() {}

    static long stepped(int number) {
        long first = number * 3L;
        long second = first + 1;
        return second * 2;
    }

    public static void main(String[] words) {
        Profiled.start();
        long sum = 0;
        for (int number = 0; number < 30; number++) {
            sum += stepped(number);
            // The debugger suspends all threads in this method, also after the last call.
            Work.fieldWork(50);
        }
        System.out.println(sum);
    }
}
