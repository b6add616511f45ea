"""Signals that arrive after stop: the process survives, and the handlers installed while profiling stay."""

import os
import signal
import sys
import threading
import time

import spanprof
import suite


def caught():
    """Signals with a handler, from /proc."""
    with open("/proc/self/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def main():
    clock, seconds = suite.arguments()
    suite.watch(seconds)
    before = caught()
    # Unhandled faults and breakpoints terminate a program by default, and also with the profiler.
    fatal = {signal.SIGSEGV, signal.SIGBUS, signal.SIGTRAP}
    # Handled only while profiling, to send the last window; afterwards it ends the process by default.
    only_while_profiling = {signal.SIGTERM}
    sent = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        suite.start(clock, 1000)
        sum(range(300_000))
        ours = caught() - before - only_while_profiling if not sent else ours
        spanprof.stop()
        if ours - caught():
            sys.exit(f"signals {ours - caught()} went back to their default at stop")
        for _ in range(2000):
            for number in ours - fatal:
                signal.pthread_kill(threading.get_ident(), number)
                os.kill(os.getpid(), number)
                sent += 2
    print(f"{sent} stray signals survived; caught by us: {sorted(ours)}")
    if not sent:
        sys.exit("no signal of ours was found")


if __name__ == "__main__":
    main()
