"""Whether a child process hangs, and what can be learned of it before it is killed: each thread as /proc shows it, C and
Python stacks. Used by the programs that fork."""

import os
import shutil
import signal
import subprocess
import time

#: What /proc tells of a thread that waits or spins: state, where in the kernel, in which system call, signal masks.
FILES = ("stat", "schedstat", "wchan", "syscall", "stack", "status")
#: The debugger itself may hang.
DEBUGGER_SECONDS = 60
#: A longer pause between two looks is the machine's, not the child's.
LONGEST_LOOK_SECONDS = 0.1
#: Time for the traceback that PYTHONFAULTHANDLER writes upon SIGABRT.
TRACEBACK_SECONDS = 2


class Patience:
    """Tells a child that hangs from one that waits for a processor, or for a machine that was stopped for a while.

    A child hangs when it was neither running nor waiting to run for `idle_seconds`, or when it ran for `run_seconds`.
    """

    def __init__(self, pid, idle_seconds, run_seconds):
        self._pid = pid
        self._idle_seconds = idle_seconds
        self._run_seconds = run_seconds
        self._looked = time.monotonic()
        self._watched = 0.0

    def is_over(self):
        """Whether it hangs. To be asked every few milliseconds: time between two looks counts up to a limit."""
        now = time.monotonic()
        self._watched += min(now - self._looked, LONGEST_LOOK_SECONDS)
        self._looked = now
        return self._watched > min(self._idle_seconds, self._run_seconds) and self._hangs()

    def _hangs(self):
        try:
            ran, waited = (int(word) / 1e9 for word in _read(f"/proc/{self._pid}/schedstat").split()[:2])
        except ValueError:
            ran, waited = 0, 0  # A kernel that does not keep these sums: only the state now is known.
        # The kernel counts a wait when it ends: of a child that waits now the last wait is not in the sum.
        waits_now = _read(f"/proc/{self._pid}/stat").rpartition(")")[2].split()[:1] == ["R"]
        return ran > self._run_seconds or (self._watched - ran - waited > self._idle_seconds and not waits_now)


def describe(pid):
    """The threads of a hung child as text. Ends the child by SIGABRT, so that faulthandler writes its Python stacks."""
    parts = [f"process {pid} hangs"]
    for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
        for name in FILES:
            parts.append(f"-- thread {task} {name}: {_read(f'/proc/{pid}/task/{task}/{name}')}")
    # Twice: a process that spins is elsewhere the second time, one that waits is not.
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
