"""Other users of the profiler's signals, installed before and after it: all keep working, and no signal ends the program."""

from __future__ import annotations

import pytest

BURN = """
import ctypes, faulthandler, os, signal, sys, threading, time
import spanprof

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(500))

def profiled():
    spanprof.flush(5)
    return spanprof.stats()["samples.cpu"]
"""


def test_faults_of_the_profiler_are_no_part_of_the_work_of_a_program(run_target):
    """A handler of SIGSEGV that the program installs after the start would be called."""
    run_target(
        BURN
        + """
spanprof.start(profiles="all", sample_rate=1000, wall_rate=200, heap_interval=65536)
def work():
    end = time.monotonic() + 1
    while time.monotonic() < end:
        [bytes(500) for _ in range(50)]
        sorted(str(number) for number in range(100))
        time.sleep(0)
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert profiled() > 5
assert spanprof.stats()["clock.guarded_faults"] == 0, spanprof.stats()["clock.guarded_faults"]
""",
    )


@pytest.mark.parametrize("order", ["before", "after"])
def test_faulthandler_reports_a_crash_as_without_the_profiler(run_target, order):
    target = run_target(
        BURN
        + f"""
if {order!r} == "before":
    faulthandler.enable()
spanprof.start(sample_rate=1000)
if {order!r} == "after":
    faulthandler.enable()
burn(0.3)
assert profiled() > 5
def crash_here():
    ctypes.string_at(8)
crash_here()
""",
        expect=-11,
    )
    assert "Fatal Python error: Segmentation fault" in target.stderr
    assert "crash_here" in target.stderr


def test_a_crash_without_faulthandler_still_ends_the_process_by_its_signal(run_target):
    run_target(BURN + "spanprof.start()\nburn(0.1)\nctypes.string_at(8)\n", expect=-11)


def test_a_handler_for_sigprof_installed_before_the_start_gets_its_signals(run_target):
    run_target(
        BURN
        + """
seen = []
signal.signal(signal.SIGPROF, lambda *_: seen.append(1))
spanprof.start()
burn(0.2)
for _ in range(50):
    before = len(seen)
    os.kill(os.getpid(), signal.SIGPROF)
    assert len(seen) == before + 1
assert profiled() > 5
spanprof.stop()
os.kill(os.getpid(), signal.SIGPROF)
assert len(seen) == 51
"""
    )


def test_a_handler_for_sigprof_installed_after_the_start_gets_its_signals_and_nothing_crashes(run_target):
    run_target(
        BURN
        + """
spanprof.start()
burn(0.2)
assert profiled() > 5
seen = []
signal.signal(signal.SIGPROF, lambda *_: seen.append(1))
os.kill(os.getpid(), signal.SIGPROF)
assert len(seen) >= 1
burn(0.2)
spanprof.stop()
burn(0.1)
"""
    )


def test_the_interval_timer_of_another_profiler_keeps_its_interval(run_target):
    run_target(
        BURN
        + """
seen = []
signal.signal(signal.SIGPROF, lambda *_: seen.append(1))
signal.setitimer(signal.ITIMER_PROF, 0.02, 0.02)
spanprof.start()
burn(0.6)
assert 15 <= len(seen) <= 60, len(seen)
assert profiled() > 15
signal.setitimer(signal.ITIMER_PROF, 0)
"""
    )


def test_a_handler_for_sigurg_installed_after_the_start_stays_and_profiling_resumes_within_two_windows(run_target):
    target = run_target(
        BURN
        + """
spanprof.start(upload_interval=1)
burn(0.2)
seen = []
signal.signal(signal.SIGURG, lambda *_: seen.append(1))
burn(2.5)
before, handled = profiled(), len(seen)
burn(0.5)
assert profiled() > before + 5, (before, profiled())
assert len(seen) == handled, "the program's handler still gets signals of the profiler"
os.kill(os.getpid(), signal.SIGURG)
assert len(seen) == handled + 1
assert spanprof.stats()["clock.signal"] == signal.SIGPROF
"""
    )
    assert "another handler was installed for SIGURG" in target.stderr


def test_a_thread_with_a_small_signal_stack_keeps_its_cpu_time_and_its_memory(run_target):
    """Threads of Rust have signal stacks of 8 KiB. Below this one nothing is mapped: a walk that overruns it ends the program."""
    target = run_target(
        BURN
        + """
import mmap
class SignalStack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_char * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
HALF, ON_STACK = 1 << 16, 0x08000000
def on_signal_stack(size, function):
    memory = mmap.mmap(-1, 2 * HALF)
    guard = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(HALF), 0) == 0
    own, previous = SignalStack(guard + HALF, 0, size), SignalStack()
    assert libc.sigaltstack(ctypes.byref(own), ctypes.byref(previous)) == 0
    function()
    assert libc.sigaltstack(ctypes.byref(previous), None) == 0
    return size - next(at for at, byte in enumerate(ctypes.string_at(guard + HALF, size)) if byte)
# What the kernel writes before a handler runs, here `getpid`.
action = Action(ctypes.cast(libc.getpid, ctypes.c_void_p).value, b"", ON_STACK, None)
assert libc.sigaction(signal.SIGUSR2, ctypes.byref(action), None) == 0
frame_bytes = on_signal_stack(HALF, lambda: signal.raise_signal(signal.SIGUSR2))
spanprof.start(sample_rate=1000)
for kib in (2, 3, 4, 48):
    refused, used = spanprof.stats()["dropped.stack_too_small"], []
    size = frame_bytes + kib * 1024
    thread = threading.Thread(target=lambda: used.append(on_signal_stack(size, lambda: burn(0.2))))
    thread.start()
    thread.join()
    profiled()
    print(kib, spanprof.stats()["dropped.stack_too_small"] - refused, *(each - frame_bytes for each in used))
spanprof.stop()
"""
    )
    counts = {kib: (refused, used) for kib, refused, used in (map(int, line.split()) for line in target.stdout.splitlines())}
    assert counts[2][0] > 50 and counts[48][0] == 0, counts
    assert 1024 < counts[48][1] < 3584, f"{counts}: a walk takes more than the handler asks for (stack_space::WALK_BYTES)"
    assert target.profiles().by_leaf()["[stack_too_small]"] > 0.15e9, target.profiles().by_leaf()


def test_stray_signals_after_stop_do_not_end_the_program(run_target):
    run_target(
        BURN
        + """
for _ in range(20):
    spanprof.start(sample_rate=1000)
    burn(0.01)
    spanprof.stop()
    for _ in range(200):
        os.kill(os.getpid(), signal.SIGURG)
"""
    )


def test_termination_works_as_without_the_profiler(run_target):
    run_target(BURN + "spanprof.start()\nburn(0.1)\nos.kill(os.getpid(), signal.SIGTERM)\n", expect=-15)
    target = run_target(
        BURN
        + """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
spanprof.start()
burn(0.3)
os.kill(os.getpid(), signal.SIGTERM)
burn(5)
""",
        expect=5,
    )
    assert target.profiles().through("burn")


def test_ctrl_c_interrupts_a_program_as_without_the_profiler(run_target):
    target = run_target(
        BURN
        + """
# The test runner may ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
spanprof.start()
burn(0.3)
try:
    os.kill(os.getpid(), signal.SIGINT)
    burn(5)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert target.stdout.strip() == "interrupted"


BUSY_THREAD = (
    BURN
    + """
import select, socket

done = False
def busy():
    while not done:
        sum(range(500))
thread = threading.Thread(target=busy)
thread.start()
libc = ctypes.CDLL(None, use_errno=True)
"""
)


@pytest.mark.parametrize("clock", ["auto", "thread_timer"])
def test_sleeps_and_polls_of_c_code_are_not_interrupted(run_target, clock):
    # The kernel never restarts usleep and poll after a handler ran; the handler of the clocks does.
    run_target(
        BUSY_THREAD
        + f"spanprof.start(sample_rate=1000, clock={clock!r})"
        + """
try:
    for _ in range(10):
        start = time.monotonic()
        time.sleep(0.02)
        assert time.monotonic() - start >= 0.02
        # C code that does not repeat an interrupted call by itself.
        assert libc.usleep(5000) == 0, os.strerror(ctypes.get_errno())
        assert libc.poll(None, 0, 5) == 0, os.strerror(ctypes.get_errno())
finally:
    done = True
    thread.join()
"""
    )


def test_restartable_system_calls_are_not_interrupted_on_any_clock(run_target):
    # The perf clock also counts kernel time, so its signal may arrive while a call is about to sleep: SA_RESTART.
    run_target(
        BUSY_THREAD
        + """
spanprof.start(sample_rate=1000)
reader, writer = os.pipe()
def feed():
    for _ in range(50):
        time.sleep(0.005)
        os.write(writer, b"x")
feeder = threading.Thread(target=feed)
feeder.start()
buffer = ctypes.create_string_buffer(1)
try:
    for _ in range(50):
        assert libc.read(reader, buffer, 1) == 1, os.strerror(ctypes.get_errno())
finally:
    done = True
    thread.join()
"""
    )


def test_without_signals_the_wall_clock_alone_works_and_no_clock_signal_is_handled(run_target):
    target = run_target(
        """
        import pathlib, signal, time
        import spanprof

        def waiting():
            time.sleep(0.5)

        def caught(number):
            fields = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
            return bool(int(fields["SigCgt"], 16) >> (number - 1) & 1)

        spanprof.start(signals=False, cpu=False, wall=True)
        assert not caught(signal.SIGURG) and not caught(signal.SIGPROF)
        waiting()
        """
    )
    assert target.profiles("wall").through("waiting")
