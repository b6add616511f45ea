"""Child processes are profiled without a call in them: fork, multiprocessing with each start method, pools."""

from __future__ import annotations

import pytest

BURN = """
import os, sys, time

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(500))

def in_child(name=""):
    burn(0.4)
"""


def seconds_by_process(target, through: str) -> dict[str, float]:
    """CPU seconds by process id, of stacks through a function."""
    seconds: dict[str, float] = {}
    for profile in target.profiles().files:
        pid = next(comment.partition("=")[2] for comment in profile.comments if comment.startswith("process.pid="))
        inside = sum(sample.nanoseconds for sample in profile.samples if through in sample.frames)
        if inside:
            seconds[pid] = seconds.get(pid, 0) + inside / 1e9
    return seconds


def test_a_forked_child_profiles_itself_under_its_own_process_id(run_target):
    target = run_target(
        BURN
        + """
import spanprof

def in_parent():
    burn(0.4)

spanprof.start()
burn(0.1)
pid = os.fork()
if pid == 0:
    in_child()
    print("child", os.getpid(), flush=True)
    sys.exit(7)
in_parent()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
    )
    child = target.stdout.split()[1]
    assert seconds_by_process(target, "in_child") == {child: pytest.approx(0.4, rel=0.25)}
    (parent_seconds,) = seconds_by_process(target, "in_parent").values()
    assert parent_seconds == pytest.approx(0.4, rel=0.25)
    instances = {comment for profile in target.profiles().files for comment in profile.comments if "instance.id" in comment}
    assert len(instances) == 2


def test_labels_current_at_the_fork_are_current_in_the_child(run_target):
    target = run_target(
        BURN
        + """
import spanprof

spanprof.start()
with spanprof.tag_wrapper({"job": "nightly"}):
    pid = os.fork()
    if pid == 0:
        with spanprof.tag_wrapper({"step": "child"}):
            in_child()
        sys.exit(0)
os.waitpid(pid, 0)
"""
    )
    inside = target.profiles().through("in_child")
    assert inside and all((s.labels["job"], s.labels["step"]) == ("nightly", "child") for s in inside)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing_children_profile_themselves_and_send_their_last_window(run_target, method):
    target = run_target(
        BURN
        + f"""
import multiprocessing
import spanprof

if __name__ == "__main__":
    spanprof.start(service_name="parent", tags={{"team": "blue"}})
    context = multiprocessing.get_context("{method}")
    processes = [context.Process(target=in_child, args=(str(n),)) for n in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0, process.exitcode
    print(*(process.pid for process in processes))
"""
    )
    cpu_seconds = seconds_by_process(target, "in_child")
    assert set(cpu_seconds) == set(target.stdout.split())
    assert all(seconds == pytest.approx(0.4, rel=0.25) for seconds in cpu_seconds.values())
    inside = target.profiles().through("in_child")
    assert all((s.labels["service.name"], s.labels["team"]) == ("parent", "blue") for s in inside)


@pytest.mark.parametrize("end", ["get_reusable_executor().shutdown()", ""])
def test_the_workers_of_joblib_profile_themselves_and_its_results_are_unchanged(run_target, end):
    target = run_target(
        BURN
        + f"""
import joblib
from joblib.externals.loky import get_reusable_executor
import spanprof

def job(number):
    in_child()
    return number * 2

if __name__ == "__main__":
    spanprof.start(service_name="parent", tags={{"team": "blue"}})
    assert joblib.Parallel(2)(joblib.delayed(job)(number) for number in range(4)) == [0, 2, 4, 6]
    {end}
"""
    )
    inside = target.profiles().through("in_child")
    assert all((s.labels["service.name"], s.labels["team"]) == ("parent", "blue") for s in inside)
    assert sum(seconds_by_process(target, "in_child").values()) == pytest.approx(1.6, rel=0.2)


def test_spawned_children_start_no_profiler_after_the_parent_stopped(run_target):
    target = run_target(
        BURN
        + """
import multiprocessing
import spanprof

def report():
    in_child()
    print(spanprof.stats())

if __name__ == "__main__":
    spanprof.start()
    spanprof.stop()
    process = multiprocessing.get_context("spawn").Process(target=report)
    process.start()
    process.join()
"""
    )
    assert target.stdout.strip() == "{}"
    assert not target.profiles().through("in_child")


def test_secrets_of_the_configuration_are_in_no_command_line_and_no_environment_of_a_child(run_target):
    target = run_target(
        """
        import multiprocessing, os
        import spanprof

        def print_process_data():
            for name in ("cmdline", "environ"):
                print(open(f"/proc/self/{name}").read().replace("\\0", " "))
            print("header", spanprof.stats()["config.headers"])

        if __name__ == "__main__":
            spanprof.start(headers={"authorization": "marker"}, stop_timeout=0.2)
            process = multiprocessing.get_context("spawn").Process(target=print_process_data)
            process.start()
            process.join()
        """
    )
    assert "marker" not in target.stdout
    assert "header" in target.stdout and "authorization" in target.stdout


def test_a_hundred_forks_while_sampling_neither_hang_nor_crash(run_target):
    run_target(
        BURN
        + """
import threading
import spanprof

def busy():
    while not done:
        with spanprof.tag_wrapper({"n": str(time.monotonic_ns() % 50)}):
            sum(range(200))

done = False
spanprof.start(sample_rate=1000, wall=True, upload_interval=0.2)
threads = [threading.Thread(target=busy, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(100):
    pid = os.fork()
    if pid == 0:
        burn(0.01)
        spanprof.flush(0.5)
        os._exit(0)
    deadline = time.monotonic() + 30
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, status
            break
        assert time.monotonic() < deadline, "a child hangs"
        time.sleep(0.002)
done = True
""",
        timeout=100,
        SPANPROF_FILE_KEEP="20",
    )


def test_a_hook_of_the_program_that_runs_before_ours_in_the_child_finds_no_profiler_and_may_start_one(run_target):
    target = run_target(
        BURN
        + """
import spanprof

def early():
    # The parent's profiler, whose threads do not exist here, is not accessible.
    answers.extend([spanprof.stats(), spanprof.flush(30), spanprof.stop()])
    with spanprof.tag_wrapper({"job": "early"}):
        pass
    if starts:
        answers.append(spanprof.start())

answers = []
os.register_at_fork(after_in_child=early)
spanprof.start()
for starts in (False, True):
    pid = os.fork()
    if pid == 0:
        assert answers == [{}, True, True] + [True] * starts, answers
        assert spanprof.stats()["state"] == "running"
        in_child()
        spanprof.stop()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    print(pid)
assert spanprof.stats()["state"] == "running"
"""
    )
    cpu_seconds = seconds_by_process(target, "in_child")
    assert set(cpu_seconds) == set(target.stdout.split())
    assert all(seconds == pytest.approx(0.4, rel=0.25) for seconds in cpu_seconds.values())


def test_a_log_line_queued_at_a_fork_starts_no_thread_before_the_hook_of_threading_is_complete(run_target):
    # Its hook is Python code, so the pending call that starts the log thread can run in the middle of it.
    run_target(
        BURN
        + """
import logging
import spanprof
from spanprof import host_log

def start_thread(function):
    started.append(os.getpid())
    return False

def early():
    host_log.start_log_thread()
    before_our_hook.append(list(started))

before_our_hook, started = [], []
os.register_at_fork(after_in_child=early)
spanprof.start()
host_log.native.start_thread = start_thread
host_log._queued_lines = lambda: [(logging.WARNING, "a line", True)]
pid = os.fork()
if pid == 0:
    assert before_our_hook == [[]], before_our_hook
    host_log.start_log_thread()
    assert started == [os.getpid()], started
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
    )


def test_a_forked_grandchild_profiles_itself_too(run_target):
    target = run_target(
        BURN
        + """
import spanprof

spanprof.start()
pid = os.fork()
if pid == 0:
    pid = os.fork()
    if pid == 0:
        in_child()
        sys.exit(0)
    os.waitpid(pid, 0)
    sys.exit(0)
os.waitpid(pid, 0)
"""
    )
    assert sum(seconds_by_process(target, "in_child").values()) == pytest.approx(0.4, rel=0.25)


def test_subprocesses_run_unchanged(run_target):
    run_target(
        """
        import subprocess, sys
        import spanprof

        spanprof.start(sample_rate=1000)
        for _ in range(20):
            assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout == "42\\n"
            assert subprocess.run(["true"], preexec_fn=lambda: None).returncode == 0
        """
    )


def test_a_subprocess_with_preexec_fn_starts_no_profiler_and_writes_nothing(run_target):
    # With close_fds, its default, `subprocess` closes the profiler's descriptors in a child where it was just started.
    run_target(
        BURN
        + """
import subprocess, threading
import spanprof

def before_exec():
    os.write(2, b"%d " % len(os.listdir("/proc/self/task")))

spanprof.start(sample_rate=1000, endpoint="http://127.0.0.1:9", upload_interval=0.2)
threading.Thread(target=burn, args=(100,), daemon=True).start()
for _ in range(200):
    done = subprocess.run(["true"], preexec_fn=before_exec, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"1 "), done
os._exit(0)
"""
    )


@pytest.mark.parametrize("had_a_hook", [False, True])
def test_workers_that_uwsgi_forks_in_c_profile_themselves_once(run_target, had_a_hook):
    target = run_target(
        BURN
        + """
import ctypes, types
import spanprof

# Like uWSGI: a built-in module in the process, workers forked in C, one hook called in each.
uwsgi = sys.modules["uwsgi"] = types.ModuleType("uwsgi")
if sys.argv[1] == "True":
    uwsgi.post_fork_hook = lambda: print("hook of the program", flush=True)
spanprof.start()
burn(0.1)
for calls in (1, 2):
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        for _ in range(calls):
            uwsgi.post_fork_hook()
        in_child()
        print("child", os.getpid(), flush=True)
        spanprof.stop()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""",
        str(had_a_hook),
    )
    output = target.stdout.split()
    children = [output[index + 1] for index, word in enumerate(output) if word == "child"]
    assert seconds_by_process(target, "in_child") == {child: pytest.approx(0.4, rel=0.25) for child in children}
    assert len(children) == 2
    assert target.stdout.count("hook of the program") == (3 if had_a_hook else 0)
