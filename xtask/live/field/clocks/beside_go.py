"""Loads a Go library before or after the profiler starts; prints its results. Reports the signal of the clock on stderr."""

import ctypes
import sys

import profiled

path, when = sys.argv[1:]


def load():
    library = ctypes.CDLL(path)
    library.GoTotal.argtypes, library.GoTotal.restype = [ctypes.c_longlong], ctypes.c_longlong
    return library


def work():
    """The work after the handler changed; the profile must contain it."""
    profiled.field_work(1.0)


library = load() if when == "before" else None
is_profiled = profiled.start()
profiled.field_work(0.3)
library = library or load()
print(library.GoTotal(5_000_000))
# Two windows: the drain thread checks the handlers once per window.
profiled.field_work(2.5)
work()
print(library.GoTotal(5_000_001))
if is_profiled:
    import spanprof

    print(f"report: signal {spanprof.stats()['clock.signal']}", file=sys.stderr)
