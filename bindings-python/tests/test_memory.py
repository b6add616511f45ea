"""Programs without memory: the profiler reports an error or ends, and the program gets the MemoryError that it would get without
the profiler. A failed allocation of Rust code would end the process (core/agent/os/src/reserve_allocator.rs)."""

from __future__ import annotations

import pytest

PROGRAM = """
import resource, sys
import spanprof

headroom = int(sys.argv[1]) << 20

def limit(extra):
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + extra, resource.RLIM_INFINITY))

def start(**settings):
    return spanprof.start(
        profiles="all", heap_interval=4096, lock_threshold=0.0, sample_rate=1000, upload_interval=0.3, **settings
    )

def allocate_all(size):
    kept = []
    try:
        while True:
            kept.append(bytes(size))
    except MemoryError:
        return len(kept)
"""


@pytest.mark.parametrize("headroom", [1, 4, 8, 16, 32, 64, 96])
def test_a_start_without_memory_succeeds_or_returns_false_and_the_program_continues(run_target, headroom):
    target = run_target(
        PROGRAM
        + """
limit(headroom)
print(start())
assert sum(range(100_000)) == 4999950000
spanprof.stats()
spanprof.stop()
print("continued")
""",
        str(headroom),
    )
    assert "continued" in target.stdout


@pytest.mark.parametrize("headroom", [2, 16, 64])
def test_memory_errors_of_the_program_are_raised_and_its_memory_is_usable_afterwards(run_target, headroom, tmp_path):
    target = run_target(
        PROGRAM
        + """
# Exports start threads.
assert start(destinations=[{"type": "file", "directory": sys.argv[2]}])
limit(headroom)
for size in (10_000, 300, 40, 5_000_000) * 2:
    allocate_all(size)
    spanprof.flush(1)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert len(bytes(100_000_000)) == 100_000_000
stats = spanprof.stats()
assert stats["internal.panics"] == 0, stats
print(stats["state"], stats["memory.reserve_bytes"])
spanprof.stop()
""",
        str(headroom),
        str(tmp_path),
    )
    print(target.stdout)


def test_a_calloc_whose_size_overflows_fails_in_every_domain_and_the_next_one_succeeds(run_target):
    run_target(
        """
import ctypes
import spanprof

assert spanprof.start(heap=True, heap_interval=1)
for domain in ("PyMem_Raw", "PyMem_", "PyObject_"):
    calloc, free = (getattr(ctypes.pythonapi, domain + name) for name in ("Calloc", "Free"))
    calloc.restype, calloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    for elements, size in ((1 << 62, 8), (8, 1 << 62), ((1 << 64) - 1, (1 << 64) - 1), (1 << 32, 1 << 32)):
        assert calloc(elements, size) is None, (domain, elements, size)
    block = calloc(100, 7)
    assert ctypes.string_at(block, 700) == bytes(700)
    free(block)
stats = spanprof.stats()
assert stats["heap.live_samples"] <= stats["heap.samples"] - stats["heap.samples_freed"], stats
spanprof.stop()
"""
    )
