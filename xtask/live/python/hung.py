"""Detects a hung child process, and collects its state before it is killed: threads in /proc, C and Python stacks. Used by the
programs that fork."""

import os
import shutil
import signal
import subprocess
import time

#: Files of /proc about a thread: state, kernel stack, system call, signal masks.
FILES = ("stat", "schedstat", "wchan", "syscall", "stack", "status")
#: The debugger itself may hang.
DEBUGGER_SECONDS = 60
#: A longer pause between two polls is a pause of the machine.
LONGEST_POLL_GAP_SECONDS = 0.1
#: Time for the traceback that PYTHONFAULTHANDLER writes at SIGABRT.
TRACEBACK_SECONDS = 2


class HangDetector:
    """Distinguishes a hung child from one that waits for a processor, and from a pause of the machine.

    A child hangs when it was neither running nor waiting to run for `idle_seconds`, or when it ran for `run_seconds`.
    """

    def __init__(self, pid, idle_seconds, run_seconds):
        self._pid = pid
        self._idle_seconds = idle_seconds
        self._run_seconds = run_seconds
        self._polled = time.monotonic()
        self._watched = 0.0

    def is_hung(self):
        """Whether it is hung. Call it every few milliseconds: the time between two polls counts up to a limit."""
        now = time.monotonic()
        self._watched += min(now - self._polled, LONGEST_POLL_GAP_SECONDS)
        self._polled = now
        return self._watched > min(self._idle_seconds, self._run_seconds) and self._makes_no_progress()

    def _makes_no_progress(self):
        try:
            ran, waited = (int(word) / 1e9 for word in _read(f"/proc/{self._pid}/schedstat").split()[:2])
        except ValueError:
            ran, waited = 0, 0  # A kernel without these sums: only the current state is available.
        # The kernel counts a wait at its end: the sum lacks a wait in progress.
        waits_now = _read(f"/proc/{self._pid}/stat").rpartition(")")[2].split()[:1] == ["R"]
        return ran > self._run_seconds or (self._watched - ran - waited > self._idle_seconds and not waits_now)


def describe(pid):
    """The threads of a hung child as text. Ends the child by SIGABRT, so that faulthandler writes its Python stacks."""
    parts = [f"process {pid} hangs"]
    for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
        for name in FILES:
            parts.append(f"-- thread {task} {name}: {_read(f'/proc/{pid}/task/{task}/{name}')}")
    # Twice: the stacks of a spinning process differ, those of a waiting one are equal.
    for _ in range(2):
        parts.append(_c_stacks(pid))
    os.kill(pid, signal.SIGABRT)
    time.sleep(TRACEBACK_SECONDS)
    return "\n".join(parts)


def _read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError as error:
        return f"({error.strerror})"


def _c_stacks(pid):
    debugger = shutil.which("gdb")
    if debugger is None:
        return "-- no gdb here: no C stacks"
    words = [debugger, "-p", str(pid), "-batch", "-nx", "-ex", "info registers rip", "-ex", "thread apply all bt"]
    try:
        shown = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=DEBUGGER_SECONDS)
    except subprocess.TimeoutExpired:
        return "-- gdb did not end"
    return f"-- gdb:\n{shown.stdout}{shown.stderr[-2000:]}"
