"""Programs that call `exec` while each thread is sampled: no sample ends the new program."""

from __future__ import annotations

import pytest

START = """
import os, sys, threading, time
import spanprof

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(500))

def start():
    return spanprof.start(sample_rate=1000)
"""


@pytest.mark.parametrize(
    "how, count",
    [("execv('/bin/sh', PROGRAM)", 100), ("execve('/bin/sh', PROGRAM, os.environ)", 25), ("execlp('sh', *PROGRAM)", 25)],
)
def test_a_program_that_executes_another_one_is_never_ended_by_a_sample(run_target, how, count):
    target = run_target(
        START
        + f"""
PROGRAM = ["sh", "-c", "exit 7"]
ends = {{}}
for turn in range({count}):
    pid = os.fork()
    if pid == 0:
        start()
        threading.Thread(target=burn, args=(60,), daemon=True).start()
        burn(0.005)
        os.{how}
    status = os.waitpid(pid, 0)[1]
    ends[status] = ends.get(status, 0) + 1
print(ends)
"""
    )
    assert target.stdout == f"{{{7 << 8}: {count}}}\n"


def test_a_child_of_a_profiled_program_is_profiled_until_it_executes_another_one(run_target):
    target = run_target(
        START
        + """
start()
ends = set()
for turn in range(100):
    pid = os.fork()
    if pid == 0:
        burn(0.003)
        os.execv("/bin/true", ["true"])
    ends.add(os.waitpid(pid, 0)[1])
print(ends)
"""
    )
    assert target.stdout == "{0}\n"


def test_a_thread_whose_exec_failed_is_sampled_as_before(run_target):
    target = run_target(
        START
        + """
def in_program():
    burn(0.5)

start()
for _ in range(3):
    try:
        os.execvp("no-such-program-anywhere", ["-"])
    except FileNotFoundError:
        pass
in_program()
"""
    )
    nanoseconds = sum(sample.nanoseconds for sample in target.profiles().through("in_program"))
    assert nanoseconds / 1e9 == pytest.approx(0.5, rel=0.1)
