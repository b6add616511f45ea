"""Runs a program with a disk buffer through an outage of its receiver, kill -9 and a stop in the middle, and kill -9 while the
backlog is sent.

    buffer.py PORT SECONDS DIRECTORY COMMAND...

The windows are of one second: an outage of a minute has the requests of ten minutes with the default of ten seconds. Every
window must arrive, in order, at most one of them twice, and memory must stay constant.
"""

import atexit
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from receivers import MODES
from request_log import RequestLog

RESIDENT_MAY_GROW_BYTES = 16 << 20
WINDOW_SECONDS = 1.0
#: A lost window leaves a gap of one second. A window begins with its first sample.
MAX_GAP_SECONDS = 0.5
#: Requests of the backlog that arrive before the second kill -9.
SENT_BEFORE_KILL = 10
LIMIT_SECONDS = 60


class Program:
    """The running program: its counters and the maximum of its resident memory."""

    def __init__(self, command):
        self.counters, self.peak_bytes, self.signaled = {}, 0, None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        # Also when the suite fails: no process stays.
        atexit.register(self.process.kill)
        for target in (self.read_counters, self.measure):
            threading.Thread(target=target, daemon=True).start()

    def read_counters(self):
        for line in self.process.stdout:
            self.counters = json.loads(line)

    def measure(self):
        while self.process.poll() is None:
            self.peak_bytes = max(self.peak_bytes, self.resident_bytes())
            time.sleep(0.05)

    def resident_bytes(self):
        try:
            with open(f"/proc/{self.process.pid}/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def new_peak(self):
        peak, self.peak_bytes = self.peak_bytes, 0
        return peak

    def end(self, kind):
        """Ends the process by a signal."""
        self.signaled = (kind, time.time())
        self.process.send_signal(kind)
        self.process.wait(timeout=LIMIT_SECONDS)


def wait_until(condition, what):
    until = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"not within {LIMIT_SECONDS} s: {what()}")
        time.sleep(0.05)


def files(directory):
    return sorted(file.name for file in pathlib.Path(directory).glob("*/*/*.request"))


def check_counters(programs):
    for program in programs:
        counters = program.counters
        lost = {name: value for name, value in counters.items() if name.startswith("dropped_") and value}
        if not counters or lost or counters["buffer_errors"]:
            sys.exit(f"requests were lost: {counters}")


def check_gaps(requests, ended):
    """Returns the longest time between two windows of one process, and the time before each signal that has no window."""
    ordered = sorted(requests, key=lambda request: request.start_ns)
    longest, unseen = 0.0, []
    signals = [program.signaled for program in ended]
    for before, after in zip(ordered, ordered[1:]):
        end, start = before.end_ns / 1e9, after.start_ns / 1e9
        of_signals = [(kind, at - end) for kind, at in signals if end - MAX_GAP_SECONDS < at < start]
        if of_signals:
            unseen.extend(of_signals)
            signals = [(kind, at) for kind, at in signals if at >= start]
        else:
            longest = max(longest, start - end)
    # Only the window that was open at kill -9 is lost.
    if longest > MAX_GAP_SECONDS or any(lost > WINDOW_SECONDS + MAX_GAP_SECONDS for _, lost in unseen):
        sys.exit(f"windows are missing: gaps of up to {longest:.2f} s, and before signals {unseen}")
    return longest, [lost for _, lost in unseen]


def main():
    port, seconds, directory, *command = sys.argv[1:]
    port, seconds = int(port), float(seconds)
    log, ended = RequestLog(), []

    program = Program([*command, str(port), directory])

    def restart(kind):
        program.end(kind)
        ended.append(program)
        return Program([*command, str(port), directory])

    with log.serving(port):
        time.sleep(seconds)
        wait_until(lambda: len(log.requests) >= seconds / 2, lambda: f"{len(log.requests)} requests before the outage")
    before, away = program.new_peak(), 0
    delivered = len(log.requests)
    signals = {"swallowed": signal.SIGKILL, "resetting": signal.SIGTERM}
    for mode, receiver in MODES.items():
        with receiver(port):
            time.sleep(seconds / 4)
            if mode in signals:
                away = max(away, program.new_peak())
                program = restart(signals[mode])
            time.sleep(seconds / 4)
    away = max(away, program.new_peak())
    waiting = len(files(directory))
    log.kills_at, log.killed_process = len(log.requests) + SENT_BEFORE_KILL, program.process.pid
    with log.serving(port):
        wait_until(log.was_killed.is_set, lambda: f"delivery did not resume: {program.counters}")
        after = program.new_peak()
        program = restart(signal.SIGKILL)
        wait_until(lambda: len(files(directory)) <= 1, lambda: f"{len(files(directory))} requests wait")
        time.sleep(seconds / 4)
        after = max(after, program.new_peak())
        program.end(signal.SIGTERM)
        left = len(files(directory))

    distinct = list(dict.fromkeys(log.requests))
    duplicates = len(log.requests) - len(distinct)
    starts = [request.start_ns for request in distinct]
    disordered = sum(later < earlier for earlier, later in zip(starts, starts[1:]))
    print(f"{waiting} requests in the buffer, {len(log.requests) - delivered} arrived after the outage;", end=" ")
    print(f"{duplicates} twice, {disordered} out of order, {left} left")
    mib = [f"{value / (1 << 20):.1f} MiB" for value in (before, away, after)]
    print(f"resident at most {mib[0]} before, {mib[1]} during, {mib[2]} after")
    check_counters([*ended, program])
    longest, unseen = check_gaps(distinct, ended)
    seen = ", ".join(f"{lost:.2f} s" for lost in unseen)
    print(f"gaps of at most {longest:.2f} s; before signals {seen}")
    if waiting < seconds:
        sys.exit(f"{waiting} requests waited after an outage of {2 * seconds} s")
    if disordered or duplicates > 1 or left:
        sys.exit("requests arrived twice, out of order, or are left")
    if max(away, after) - before > RESIDENT_MAY_GROW_BYTES:
        sys.exit("memory grew")


if __name__ == "__main__":
    main()
