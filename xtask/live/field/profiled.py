"""Starts spanprof in a program of this directory when the cell requires it; otherwise the run is the reference."""

import os
import sys
import time

#: Directory of the profiles. Unset in the reference run.
PROFILES = "FIELD_PROFILES"
#: `auto`, `thread_timer` or `perf`.
CLOCK = "FIELD_CLOCK"
#: Samples per second of CPU time.
RATE = "FIELD_RATE"
#: Wall-clock samples are enabled unless it is empty.
WALL = "FIELD_WALL"


def start():
    """True when the profiler runs; False in the reference run, and on a machine without a clock, which is logged."""
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
        # The message and the hint are on separate lines.
        print("spanprof:", " ".join(str(error).splitlines()), file=sys.stderr)
        return False


def field_work(seconds):
    """Uses CPU time of this thread; every profile must contain this function."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(500))
