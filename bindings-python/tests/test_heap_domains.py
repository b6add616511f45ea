"""The interpreter's RAW domain in the heap profile: callers without the GIL and without a thread state, and requests that MEM and
OBJ pass on to RAW."""

from __future__ import annotations

import pytest
from test_heap import PROGRAM, megabytes

RAW = (
    PROGRAM
    + """
import ctypes
# Functions of a CDLL are called without the GIL.
library = ctypes.CDLL(None)
library.PyMem_RawMalloc.restype = library.PyMem_RawCalloc.restype = library.PyMem_RawRealloc.restype = ctypes.c_void_p
library.PyMem_RawMalloc.argtypes = [ctypes.c_size_t]
library.PyMem_RawCalloc.argtypes = [ctypes.c_size_t] * 2
library.PyMem_RawRealloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
library.PyMem_RawFree.argtypes = [ctypes.c_void_p]

def in_threads(function):
    threads = [threading.Thread(target=function) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
)


def test_threads_without_the_gil_allocate_known_amounts_in_the_raw_domain(run_target):
    target = run_target(
        RAW
        + """
start()
assert spanprof.stats()["runtime.python.heap_domains"].startswith("raw,mem,obj")
assert spanprof.stats()["runtime.python.heap_unseen"] == "malloc_of_extensions"

def leak_raw():
    for _ in range(100):
        kept.append(library.PyMem_RawMalloc(100_000))
    for _ in range(100):
        kept.append(library.PyMem_RawCalloc(10, 10_000))

def churn_raw():
    for _ in range(200):
        library.PyMem_RawFree(library.PyMem_RawMalloc(100_000))

def busy():
    return spanprof.stats()["dropped.heap_busy"]

in_threads(leak_raw)
print(busy())
in_threads(churn_raw)
print(busy())
spanprof.stop()
""",
    )
    # 800 blocks are sampled with probability 0.78: a standard error of 1.9 %, of which this allows four. Threads that take a
    # sample at the same time lose it, which is counted.
    leaking, churning = (int(line) for line in target.stdout.split())
    lost = 0.1 / 0.783
    leaked = 80 - leaking * lost
    assert leaked > 20
    last = target.profiles("heap").files[-1]
    in_use = sum(sample.bytes for sample in last.samples if "leak_raw" in sample.frames) / 1e6
    assert in_use == pytest.approx(leaked, rel=0.12)
    assert megabytes(target, "allocs", "leak_raw") == pytest.approx(leaked, rel=0.12)
    assert megabytes(target, "allocs", "churn_raw") == pytest.approx(80 - (churning - leaking) * lost, rel=0.12)
    assert not any("churn_raw" in sample.frames for sample in last.samples)


def test_a_block_of_the_raw_domain_that_grows_is_in_use_once_with_its_last_size(run_target):
    target = run_target(
        RAW
        + """
start(heap_interval=4096)

def grow_raw():
    block = None
    for kilobytes in range(1, 1001):
        block = library.PyMem_RawRealloc(block, kilobytes * 1000)
    kept.append(block)

for _ in range(8):
    grow_raw()
spanprof.stop()
"""
    )
    # A block of 1 MB is always sampled.
    assert megabytes(target, "heap", "grow_raw") == pytest.approx(8, rel=0.01)


def test_a_thread_without_a_thread_state_allocates_below_the_frame_for_this_reason(run_target):
    target = run_target(
        RAW
        + """
start(heap_interval=1024)
for _ in range(50):
    thread = ctypes.c_ulong()
    # The thread's function takes the size as its argument.
    routine = ctypes.cast(library.PyMem_RawMalloc, ctypes.c_void_p)
    assert library.pthread_create(ctypes.byref(thread), None, routine, ctypes.c_void_p(200_000)) == 0
    assert library.pthread_join(thread, None) == 0
spanprof.stop()
"""
    )
    samples = target.profiles("heap").files[-1].samples
    unknown = sum(sample.bytes for sample in samples if list(sample.frames) == ["[no_thread_state]"]) / 1e6
    # The profiler's own threads also allocate their thread states.
    assert 10 <= unknown < 10.5


@pytest.mark.parametrize("allocator", ["pymalloc", "malloc"])
def test_objects_that_shrink_from_the_raw_domain_to_a_small_size_are_counted_once(run_target, allocator):
    target = run_target(
        RAW
        + """
start(heap_interval=4096)
reader, writer = os.pipe()

def read():
    # Allocates 1033 bytes and resizes them to 333, which hold the 300 that it has read.
    os.write(writer, bytes(300))
    kept.append(os.read(reader, 1000))

def read_all():
    for number in range(10_000):
        read()
        if number % 500 == 0:
            time.sleep(0.005)

read_all()
assert live_samples() < 1200, live_samples()
kept.clear()
assert live_samples() < 100, live_samples()
read_all()
spanprof.stop()
""",
        PYTHONMALLOC=allocator,
    )
    # 333 bytes each, sampled with probability 0.078: 10,000 have a standard error of 3.4 %, of which this allows four.
    assert megabytes(target, "heap", "read") == pytest.approx(3.33, rel=0.14)


def test_sampled_small_objects_keep_their_contents_are_counted_as_blocks_once_and_leave_the_profile_when_freed(run_target):
    # Each request is sampled. Resizes go from and to sizes that pymalloc serves itself and sizes that it passes to RAW.
    run_target(
        RAW
        + """
for function in ("Malloc", "Realloc"):
    getattr(ctypes.pythonapi, "PyObject_" + function).restype = ctypes.c_void_p
ctypes.pythonapi.PyObject_Malloc.argtypes = [ctypes.c_size_t]
ctypes.pythonapi.PyObject_Realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
ctypes.pythonapi.PyObject_Free.argtypes = [ctypes.c_void_p]
SIZES = (10, 100, 512, 513, 40, 2000, 600, 300, 16)

def blocks():
    return sys.getallocatedblocks()

def resized():
    block = ctypes.pythonapi.PyObject_Malloc(SIZES[0])
    ctypes.memmove(block, b"contents", 8)
    for size in SIZES:
        block = ctypes.pythonapi.PyObject_Realloc(block, size)
        assert ctypes.string_at(block, 8) == b"contents", size
    ctypes.pythonapi.PyObject_Free(block)

def small():
    return [bytes(100) for _ in range(2000)]

early = small()
start(heap_interval=1)
before = blocks()
for _ in range(20):
    resized()
time.sleep(0.5)
late = small()
# The ring may be full for some of them.
assert live_samples() > 1000, live_samples()
assert abs(blocks() - before - 2000) < 200, blocks() - before
del early[:], late[:]
assert live_samples() < 500, live_samples()
assert abs(blocks() - before + 2000) < 200, blocks() - before
spanprof.stop()
"""
    )


def test_a_small_object_that_the_raw_domain_has_no_memory_for_is_allocated_without_a_sample(run_target):
    run_target(
        RAW
        + """
class Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]

start(heap_interval=1)
raw, failing = Allocator(), Allocator()
ctypes.pythonapi.PyMem_GetAllocator(0, ctypes.byref(raw))
ctypes.pythonapi.PyMem_GetAllocator(0, ctypes.byref(failing))
# Returns its first argument, a null context, in place of memory.
assert raw.context is None
failing.malloc = ctypes.cast(library.labs, ctypes.c_void_p)
kept = [None] * 1000
set_allocator, reference, numbers = ctypes.pythonapi.PyMem_SetAllocator, ctypes.byref, range(1000)
set_allocator(0, reference(failing))
for number in numbers:
    kept[number] = object()
set_allocator(0, reference(raw))
assert all(type(one) is object for one in kept)
spanprof.stop()
"""
    )


@pytest.mark.parametrize("allocator", ["debug", "malloc_debug", "dev_mode"])
def test_with_debug_allocators_the_raw_domain_is_declined_by_one_warning_and_the_others_count_everything(
    run_target, allocator
):
    environment = {"PYTHONDEVMODE": "1"} if allocator == "dev_mode" else {"PYTHONMALLOC": allocator}
    target = run_target(
        RAW
        + """
start()
spanprof.update(heap=False)
spanprof.update(heap=True)
stats = spanprof.stats()
assert stats["runtime.python.heap_domains"] == "mem,obj", stats["runtime.python.heap_domains"]
assert stats["runtime.python.heap_unseen"] == "malloc_of_extensions,raw"
leak(64)
kept.append(library.PyMem_RawMalloc(10_000_000))
spanprof.stop()
""",
        **environment,
    )
    assert target.stderr.count("does not see the RAW domain") == 1, target.stderr
    assert megabytes(target, "heap", "leak") == pytest.approx(64, rel=0.13)
    assert sum(sample.bytes for sample in target.profiles("heap").files[-1].samples) < 75e6


def test_without_debug_allocators_no_warning_is_logged(run_target):
    target = run_target(RAW + "start()\nspanprof.stop()\n")
    assert "RAW domain" not in target.stderr
