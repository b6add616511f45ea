"""Shared by the scripts of this directory: start of a cell, its leftovers, and a watchdog against hangs."""

import atexit
import faulthandler
import os
import shutil
import sys
import tempfile

import spanprof

#: Time beyond the requested duration after which a cell is hung: it dumps every stack and exits with an error.
GRACE_SECONDS = 90


def arguments():
    """Clock and size from the command line."""
    clock, size = sys.argv[1:]
    return clock, int(size)


def watch(seconds):
    """Ends a hung process, with every stack on stderr."""
    faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True)


def start(clock, rate, **settings):
    """Starts with files in a new directory as destination, and returns the directory; ends the cell without such a clock."""
    folder = tempfile.mkdtemp(prefix="spanprof-live-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    settings.setdefault("destinations", [{"type": "file", "directory": folder, "keep": 10_000}])
    if not spanprof.start(service_name="live", clock=clock, sample_rate=rate, upload_interval=5, **settings):
        # The reason is on standard error.
        print(f"not to be had here: clock {clock}")
        sys.exit(clock != "perf")
    if not str(spanprof.stats()["clock.name"]).startswith(clock):
        sys.exit(f"asked for clock {clock}, got {spanprof.stats()['clock.name']}")
    return folder


def resident_bytes():
    """Resident memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files():
    """Descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def kernel_threads():
    """Threads of this process, from /proc."""
    return len(os.listdir("/proc/self/task"))
