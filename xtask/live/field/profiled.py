"""Starts spanprof in a program of this folder, if the cell asks for it; without, the same program is the reference."""

import os
import sys
import time

#: Directory of the profiles. Unset in the reference run.
PROFILES = "FIELD_PROFILES"
#: `auto`, `thread_timer` or `perf`.
CLOCK = "FIELD_CLOCK"
#: Samples per second of CPU time.
RATE = "FIELD_RATE"
#: Anything but the empty text turns wall-clock samples on.
WALL = "FIELD_WALL"


def start():
    """True when the profiler runs; False in the reference run, and where the machine has no clock, which one line reports."""
    directory = os.environ.get(PROFILES)
    if not directory:
        return False
    import spanprof

    try:
        return spanprof.start(
            service_name="field",
            clock=os.environ.get(CLOCK) or "auto",
            sample_rate=int(os.environ.get(RATE) or 100),
            wall=bool(os.environ.get(WALL)),
            upload_interval=1,
            destinations=[{"type": "file", "directory": directory, "keep": 10_000}],
        )
    except spanprof.SpanprofError as error:
        if error.kind != "no_clock":
            raise
        # The message and the hint lie on lines of their own.
        print("spanprof:", " ".join(str(error).splitlines()), file=sys.stderr)
        return False


def field_work(seconds):
    """Burns CPU time of this thread; the function that every profile must hold."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(500))
