import com.sun.jdi.Bootstrap;
import com.sun.jdi.Location;
import com.sun.jdi.ThreadReference;
import com.sun.jdi.VirtualMachine;
import com.sun.jdi.connect.LaunchingConnector;
import com.sun.jdi.event.BreakpointEvent;
import com.sun.jdi.event.ClassPrepareEvent;
import com.sun.jdi.event.Event;
import com.sun.jdi.event.EventSet;
import com.sun.jdi.event.StepEvent;
import com.sun.jdi.event.VMDisconnectEvent;
import com.sun.jdi.request.ClassPrepareRequest;
import com.sun.jdi.request.EventRequest;
import com.sun.jdi.request.EventRequestManager;
import com.sun.jdi.request.StepRequest;
import java.util.List;

/**
 * A debugger: starts {@link Stepped} under JDWP, stops at a breakpoint each time, steps over three lines, resumes, and suspends all
 * threads once while they work. Prints each line where it stopped, and the output of the program.
 */
final class Debugger {
    private static final int STEPS = 3;

    private final VirtualMachine vm;
    private final EventRequestManager requests;
    private int steps;
    private int stops;

    private Debugger(VirtualMachine vm) {
        this.vm = vm;
        requests = vm.eventRequestManager();
    }

    public static void main(String[] words) throws Exception {
        LaunchingConnector connector = Bootstrap.virtualMachineManager().defaultConnector();
        var settings = connector.defaultArguments();
        settings.get("main").setValue("Stepped");
        settings.get("options").setValue("-cp " + System.getProperty("java.class.path"));
        VirtualMachine vm = connector.launch(settings);
        new Debugger(vm).run();
        Process process = vm.process();
        int code = process.waitFor();
        process.getInputStream().transferTo(System.out);
        process.getErrorStream().transferTo(System.err);
        System.out.println("exit " + code);
    }

    private void run() throws Exception {
        ClassPrepareRequest prepared = requests.createClassPrepareRequest();
        prepared.addClassFilter("Stepped");
        prepared.enable();
        while (true) {
            EventSet events = vm.eventQueue().remove();
            for (Event event : events) {
                if (event instanceof VMDisconnectEvent) {
                    System.out.println("stops " + stops);
                    return;
                }
                handle(event);
            }
            events.resume();
            if (steps == STEPS) {
                steps = 0;
                stopAll();
            }
        }
    }

    private void handle(Event event) throws Exception {
        if (event instanceof ClassPrepareEvent prepared) {
            Location first = prepared.referenceType().methodsByName("stepped").get(0).location();
            requests.createBreakpointRequest(first).enable();
        } else if (event instanceof BreakpointEvent stopped) {
            System.out.println("breakpoint " + stopped.location() + " " + stopped.thread().frame(0).getArgumentValues());
            step(stopped.thread());
        } else if (event instanceof StepEvent stepped) {
            System.out.println("step " + stepped.location());
            requests.deleteEventRequest(stepped.request());
            steps++;
            if (steps < STEPS) {
                step(stepped.thread());
            }
        }
    }

    private void step(ThreadReference thread) {
        StepRequest request = requests.createStepRequest(thread, StepRequest.STEP_LINE, StepRequest.STEP_OVER);
        request.setSuspendPolicy(EventRequest.SUSPEND_ALL);
        request.enable();
    }

    /** Suspends the VM at an arbitrary point and reads the stacks of its threads. */
    private void stopAll() throws Exception {
        Thread.sleep(10);
        vm.suspend();
        List<ThreadReference> threads = vm.allThreads();
        for (ThreadReference thread : threads) {
            stops += thread.name().equals("main") && thread.frameCount() > 0 ? 1 : 0;
        }
        vm.resume();
    }
}
