"""The end of short-lived processes: each delivers its last window and ends as without a profiler, or is counted."""

from __future__ import annotations

import pytest
from receiver import refused
from test_processes import BURN, seconds_by_process


#: Each runs `in_family` in two children.
WAYS = {
    "os._exit": "fork_twice(lambda: os._exit(0))",
    "SIGTERM": "fork_twice(lambda: os.kill(os.getpid(), signal.SIGTERM))",
    "Process": """
processes = [context.Process(target=in_family) for _ in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
""",
    "with Pool": """
with context.Pool(2) as pool:
    pool.map(in_family, range(2), chunksize=1)
""",
    "Pool.close": """
pool = context.Pool(2)
pool.map(in_family, range(2), chunksize=1)
pool.close()
pool.join()
""",
    "ProcessPoolExecutor": """
with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
    list(pool.map(in_family, range(2)))
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_cpu_time_of_a_parent_and_its_children_is_complete_however_they_end(run_target, way):
    target = run_target(
        """
import concurrent.futures, multiprocessing, os, signal, time
import spanprof

def in_family(_=None):
    start = time.thread_time()
    while time.thread_time() - start < 0.8:
        sum(range(500))

def fork_twice(end):
    pids = []
    for _ in range(2):
        pids.append(os.fork())
        if pids[-1] == 0:
            in_family()
            end()
            time.sleep(30)
    for pid in pids:
        os.waitpid(pid, 0)

context = multiprocessing.get_context("fork")
spanprof.start()
in_family()
"""
        + WAYS[way]
        + """
assert spanprof.stats()["process.children_cut_off"] == 0
"""
    )
    # The time since the last sample is lost: at most an interval and a half per process.
    assert 0.95 * 2.4 < sum(seconds_by_process(target, "in_family").values()) < 1.05 * 2.4


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_workers_of_a_pool_that_is_terminated_deliver_their_last_window(run_target, method):
    target = run_target(
        BURN
        + f"""
import multiprocessing
import spanprof

if __name__ == "__main__":
    spanprof.start()
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        pool.map(in_child, range(2), chunksize=1)
"""
    )
    assert sum(seconds_by_process(target, "in_child").values()) == pytest.approx(0.8, rel=0.1)


def test_forked_children_that_end_by_os_exit_deliver_their_last_window(run_target):
    target = run_target(
        BURN
        + """
import spanprof

spanprof.start()
for status in range(5):
    pid = os.fork()
    if pid == 0:
        burn(0.01) if status else in_child()
        os._exit(status=status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status
for wrong in ("3", None):
    try:
        os._exit(wrong)
    except TypeError:
        pass
assert spanprof.stats()["state"] == "running"
assert spanprof.stats()["process.children_cut_off"] == 0
"""
    )
    assert sum(seconds_by_process(target, "in_child").values()) == pytest.approx(0.4, rel=0.1)


def test_a_process_that_sigterm_ends_delivers_its_last_window_and_ends_by_sigterm(run_target):
    target = run_target(
        BURN
        + """
import signal
import spanprof

spanprof.start()
in_child()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
""",
        expect=-15,
    )
    assert sum(seconds_by_process(target, "in_child").values()) == pytest.approx(0.4, rel=0.1)


def test_sigterm_and_os_exit_do_not_wait_for_a_dead_receiver(run_target):
    run_target(
        BURN
        + """
import signal
import spanprof

def ends_within(seconds, end):
    pid = os.fork()
    if pid == 0:
        burn(0.1)
        end()
        time.sleep(30)
    start = time.monotonic()
    os.waitpid(pid, 0)
    took = time.monotonic() - start - 0.1
    assert took < seconds, took

spanprof.start(endpoint=sys.argv[1], stop_timeout=0.1)
# Generous, because the machine may be busy. Without their own bound they would take much longer.
ends_within(5, lambda: os._exit(0))
ends_within(5, lambda: os.kill(os.getpid(), signal.SIGTERM))
""",
        refused(),
        SPANPROF_FILE_DIRECTORY="",
    )


def test_sigterm_handlers_of_the_program_take_precedence_before_and_after_the_start(run_target):
    target = run_target(
        """
        import os, signal
        import spanprof

        def handler(*_):
            # One unbuffered write, because two processes write.
            os.write(1, b"handled\\n")

        if os.fork() == 0:
            signal.signal(signal.SIGTERM, handler)
            spanprof.start()
        else:
            spanprof.start()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            signal.signal(signal.SIGTERM, handler)
        os.kill(os.getpid(), signal.SIGTERM)
        spanprof.stop()
        os.kill(os.getpid(), signal.SIGTERM)
        """
    )
    assert target.stdout.split() == ["handled"] * 4


def test_children_that_sigkill_ends_are_counted(run_target):
    run_target(
        BURN
        + """
import signal
import spanprof

spanprof.start()
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        burn(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
assert spanprof.stats()["process.children_cut_off"] == 3, spanprof.stats()
"""
    )


def test_a_child_forked_while_a_log_line_is_pending_before_the_first_import_of_logging_ends(run_target):
    run_target(
        """
import os, sys, threading, time
import spanprof

import_started, is_forked = threading.Event(), threading.Event()

class SlowFinder:
    def find_spec(self, name, path=None, target=None):
        if name == "logging" and threading.current_thread() is not threading.main_thread():
            import_started.set()
            is_forked.wait(20)

assert "logging" not in sys.modules
sys.meta_path.insert(0, SlowFinder())
spanprof.start(upload_interval=0.1)
# The line about the first window is logged in this time, on a thread that a pending call of the main thread starts.
end = time.monotonic() + 2
while not import_started.is_set() and time.monotonic() < end:
    sum(range(5000))
    time.sleep(0.01)
pid = os.fork()
if pid == 0:
    is_forked.set()
    sys.exit(7)
is_forked.set()
end = time.monotonic() + 20
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    if time.monotonic() > end:
        os.kill(pid, 9)
        sys.exit("the child hangs at exit")
    time.sleep(0.01)
"""
    )


def test_a_warning_reaches_standard_error_when_the_program_does_not_import_logging(run_target):
    target = run_target(
        """
import sys
import spanprof

spanprof.start()
spanprof.start()
spanprof.stop()
assert "logging" not in sys.modules, "the profiler imported logging"
"""
    )
    assert "start() was called again" in target.stderr


@pytest.mark.parametrize("way", ["fork", "Process"])
def test_a_child_ends_whose_logging_needs_a_lock_that_a_thread_of_the_parent_held_at_the_fork(run_target, way):
    # As a QueueHandler has inside; the threads of the parent are not in the child.
    target = run_target(
        BURN
        + """
import logging, multiprocessing, threading
import spanprof

inner, is_held, ends = threading.Lock(), threading.Event(), threading.Event()

class Handler(logging.Handler):
    def emit(self, record):
        with inner:
            print(record.getMessage())

def hold():
    with inner:
        is_held.set()
        ends.wait(60)

def end_in_child():
    burn(0.2)
    sys.exit(7)

def run(way):
    if way == "Process":
        process = multiprocessing.get_context("fork").Process(target=end_in_child)
        process.start()
        process.join(30)
        return process.exitcode
    pid = os.fork()
    if pid == 0:
        end_in_child()
    for _ in range(3000):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)

logging.basicConfig(level=logging.INFO, handlers=[Handler()])
spanprof.start(endpoint=sys.argv[1], stop_timeout=0.2)
threading.Thread(target=hold).start()
is_held.wait()
burn(0.2)
exitcode = run(sys.argv[2])
ends.set()
if exitcode != 7:
    os.abort()
""",
        refused(),
        way,
        SPANPROF_FILE_DIRECTORY="",
    )
    # The child's warning, and that of its parent.
    assert target.stderr.count("window lost") == target.stdout.count("window lost") == 1
