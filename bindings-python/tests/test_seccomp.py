"""Processes with a seccomp filter, as in containers and systemd units: for each action of the filter, the profiler starts and
the program continues."""

from __future__ import annotations

import platform

import pytest

# By linux/filter.h and linux/seccomp.h: compares only the number of the system call.
SANDBOX = """
import ctypes, struct, sys, time

def deny(call, action):
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, action), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    word = ctypes.c_ulong
    assert libc.prctl(38, word(1), word(0), word(0), word(0)) == 0
    assert libc.prctl(22, word(2), word(ctypes.addressof(program))) == 0, ctypes.get_errno()

def in_sandbox():
    start = time.thread_time()
    while time.thread_time() - start < 0.5:
        sum(range(500))
"""
ACTIONS = {"error": 0x00050001, "kill": 0x80000000}
PROCESS_VM_READV = 310


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls are those of x86-64")
@pytest.mark.parametrize("clock", ["cpu", "wall"])
@pytest.mark.parametrize("action", ACTIONS)
def test_no_memory_is_read_by_system_calls_even_while_another_fault_handler_is_installed(run_target, action, clock):
    target = run_target(
        SANDBOX
        + f"""
import faulthandler
import spanprof

deny({PROCESS_VM_READV}, {ACTIONS[action]})
assert spanprof.start(cpu={clock == "cpu"}, wall={clock == "wall"}, upload_interval=0.3)
in_sandbox()
# The program's handlers replace ours; reads fail until ours are installed again.
faulthandler.enable()
in_sandbox()
time.sleep(0.5)
in_sandbox()
in_sandbox()
assert spanprof.stop()
"""
    )
    seconds = sum(sample.nanoseconds for sample in target.profiles(clock).through("in_sandbox")) / 1e9
    assert seconds > 1.0
