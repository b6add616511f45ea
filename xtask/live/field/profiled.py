"""Starts spanprof in a program of a cell when the cell requires it; otherwise the run is the reference."""

import os
import time

#: Directory of the profiles. Unset in the reference run.
PROFILES = "FIELD_PROFILES"
#: A clock that the cell requires: unlike `SPANPROF_CLOCK`, no other clock replaces it.
CLOCK = "FIELD_CLOCK"


def start():
    """True when the profiler runs; False in the reference run, and on a machine without a clock, which is logged."""
    directory = os.environ.get(PROFILES)
    if not directory:
        return False
    import spanprof

    clock = os.environ.get(CLOCK)
    return spanprof.start(
        service_name="field",
        **({"clock": clock} if clock else {}),
        upload_interval=1,
        destinations=[{"type": "file", "directory": directory, "keep": 10_000}],
    )


def field_work(seconds):
    """Uses CPU time of this thread; every profile must contain this function."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(500))
