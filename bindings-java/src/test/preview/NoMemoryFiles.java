import io.spanprof.Spanprof;
import io.spanprof.SpanprofConfig;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Starts the profiler on a thread that may not create in-memory files: memfd_create fails, or with {@code kill} as the
 * second argument ends the process. The seccomp filter applies to this thread only.
 */
public final class NoMemoryFiles {
    private static final int PR_SET_SECCOMP = 22;
    private static final int PR_SET_NO_NEW_PRIVS = 38;
    private static final int MEMFD_CREATE = 319;
    private static final int PERMISSION_DENIED = 0x0005_0000 | 1;
    private static final int KILL_PROCESS = 0x8000_0000;
    private static final int ALLOWED = 0x7fff_0000;

    private NoMemoryFiles() {}

    /** A filter that compares the system call number only (linux/filter.h, linux/seccomp.h). */
    private static MemorySegment filter(Arena arena, int action) {
        int[][] steps = {{0x20, 0}, {0x15 | 1 << 24, MEMFD_CREATE}, {0x06, action}, {0x06, ALLOWED}};
        MemorySegment code = arena.allocate(8L * steps.length, 8);
        for (int i = 0; i < steps.length; i++) {
            code.set(ValueLayout.JAVA_INT, 8L * i, steps[i][0]);
            code.set(ValueLayout.JAVA_INT, 8L * i + 4, steps[i][1]);
        }
        MemorySegment program = arena.allocate(16, 8);
        program.set(ValueLayout.JAVA_SHORT, 0, (short) steps.length);
        program.set(ValueLayout.ADDRESS, 8, code);
        return program;
    }

    public static void main(String[] args) throws Throwable {
        Linker linker = Linker.nativeLinker();
        ValueLayout.OfLong number = ValueLayout.JAVA_LONG;
        MethodHandle prctl = linker.downcallHandle(linker.defaultLookup().find("prctl").orElseThrow(),
                FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, number, number, number, number));
        int action = args.length > 1 && args[1].equals("kill") ? KILL_PROCESS : PERMISSION_DENIED;
        try (Arena arena = Arena.ofConfined()) {
            int isPermitted = (int) prctl.invokeExact(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L);
            int isDenied = (int) prctl.invokeExact(PR_SET_SECCOMP, 2L, filter(arena, action).address(), 0L, 0L);
            System.out.println("sandboxed " + (isPermitted == 0 && isDenied == 0 ? 1 : 0));
        }
        Spanprof.start(SpanprofConfig.builder().serviceName("sandboxed").fileDirectory(args[0]).build());
        System.out.println("runs " + (Spanprof.isRunning() ? 1 : 0));
        String mapped = Files.readString(Path.of("/proc/self/maps"));
        System.out.println("from_memory " + (mapped.contains("memfd:libspanprof_java.so") ? 1 : 0));
        System.out.println("stopped " + (Spanprof.stop() ? 1 : 0));
    }
}
