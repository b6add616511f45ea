"""Heap profiles of programs with numpy: live and allocated arrays compared with known sizes, beside numpy's other handlers."""

from __future__ import annotations

import pytest
from test_heap import PROGRAM, megabytes

pytest.importorskip("numpy", minversion="1.22")

# Without a hook on the RAW domain, so that every version of numpy needs the handler.
HANDLER = {"PYTHONMALLOC": "pymalloc_debug"}

ARRAYS = (
    PROGRAM
    + """
def leak_arrays(count):
    for _ in range(count):
        kept.append(numpy.ones(12_500))

def churn_arrays(count):
    for _ in range(count):
        numpy.ones(12_500)

def handler_name():
    multiarray = numpy._core.multiarray if hasattr(numpy, "_core") else numpy.core.multiarray
    return multiarray.get_handler_name()

def domains():
    return spanprof.stats()["runtime.python.heap_domains"].split(",")
"""
)


@pytest.mark.parametrize("allocator", ["pymalloc", "pymalloc_debug"])
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_leak_of_arrays_has_its_known_size_whether_numpy_is_imported_before_or_after_the_start(
    run_target, order, allocator
):
    target = run_target(
        ARRAYS
        + f"""
if {order!r} == "before":
    import numpy
start()
import numpy
assert "numpy" in domains()
# Newer versions of numpy allocate in the RAW domain, which has a hook.
assert handler_name() == "spanprof" or {allocator!r} == "pymalloc" and numpy.__version__ >= "2.3", handler_name()
with spanprof.tag_wrapper({{"tenant": "a"}}):
    leak_arrays(1000)
churn_arrays(500)
del kept[:200]
assert spanprof.stop() is True
""",
        PYTHONMALLOC=allocator,
    )
    # Arrays of 100 kB are sampled with probability 0.78: 800 of them have a standard error of 1.9 %, of which this allows four.
    assert megabytes(target, "heap", "leak_arrays", tenant="a") == pytest.approx(80, rel=0.075)
    assert megabytes(target, "allocs", "leak_arrays", tenant="a") == pytest.approx(100, rel=0.07)
    assert megabytes(target, "allocs", "churn_arrays") == pytest.approx(50, rel=0.1)
    assert megabytes(target, "heap", "churn_arrays") < 1


def test_resized_arrays_count_once_with_their_last_size(run_target):
    target = run_target(
        ARRAYS
        + """
import numpy
start(heap_interval=4096)
def grow():
    array = numpy.zeros(1000)
    for size in range(1, 101):
        array.resize(size * 10_000, refcheck=False)
    return array
kept.append(grow())
spanprof.stop()
"""
    )
    assert megabytes(target, "heap", "grow") == pytest.approx(8, rel=0.05)


def test_arrays_that_outlive_the_profile_and_its_next_runs_are_freed_by_the_handler_that_they_have(run_target):
    target = run_target(
        ARRAYS
        + """
import numpy
start(heap_interval=1024)
leak_arrays(50)
spanprof.stop()
assert handler_name() == "spanprof"
first = list(kept)
kept.clear()
assert all(float(array.sum()) == 12_500 for array in first)
leak_arrays(50)
start(heap_interval=1024)
before = live_samples()
del first[:]
kept.clear()
leak_arrays(30)
assert 25 <= live_samples() - before <= 60, (before, live_samples())
spanprof.update(heap=False)
leak_arrays(30)
kept.clear()
spanprof.update(heap=True)
leak_arrays(20)
spanprof.stop()
kept.clear()
""",
        **HANDLER,
    )
    last = target.profiles("heap").files[-1]
    assert sum(sample.bytes for sample in last.samples if "leak_arrays" in sample.frames) == pytest.approx(2e6, rel=0.01)


def test_new_threads_and_executors_have_the_handler_and_an_empty_context_has_not(run_target):
    target = run_target(
        ARRAYS
        + """
import concurrent.futures, contextvars, numpy
start()
thread = threading.Thread(target=leak_arrays, args=(200,))
thread.start()
thread.join()
with concurrent.futures.ThreadPoolExecutor(2) as executor:
    assert executor.submit(handler_name).result() == "spanprof"
assert contextvars.copy_context().run(handler_name) == "spanprof"
assert contextvars.Context().run(handler_name) == "default_allocator"
spanprof.stop()
""",
        **HANDLER,
    )
    assert megabytes(target, "heap", "leak_arrays") == pytest.approx(20, rel=0.15)


def test_a_handler_of_the_program_stays_and_arrays_of_both_are_freed(run_target):
    run_target(
        ARRAYS
        + """
import ctypes, numpy
get, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
try:
    from numpy._core import _multiarray_umath
except ImportError:
    from numpy.core import _multiarray_umath
table = ctypes.cast(get(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304])
get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(table[305])

default = get_handler()
# A copy of numpy's default handler under another name.
copy = ctypes.create_string_buffer(ctypes.string_at(get(default, b"mem_handler"), 128 + 5 * 8))
copy[:5] = b"mine" + bytes(1)
own = new(ctypes.addressof(copy), b"mem_handler", None)
set_handler(own)
start(heap_interval=1024)
assert handler_name() == "mine", handler_name()
leak_arrays(20)
set_handler(default)
spanprof.update(heap=False)
spanprof.update(heap=True)
assert handler_name() == "spanprof", handler_name()
leak_arrays(20)
assert live_samples() >= 20
# A handler that a block replaces and restores.
ours = set_handler(own)
leak_arrays(20)
set_handler(ours)
leak_arrays(20)
assert all(float(array.sum()) == 12_500 for array in kept)
kept.clear()
spanprof.stop()
""",
        **HANDLER,
    )


def test_a_forked_child_has_inherited_arrays_and_tracemalloc_still_sees_them(run_target):
    target = run_target(
        ARRAYS
        + """
import numpy, tracemalloc
start()
leak_arrays(400)
pid = os.fork()
if pid == 0:
    del kept[:200]
    leak_arrays(100)
    spanprof.stop()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
spanprof.update(heap=False)
tracemalloc.start()
leak_arrays(100)
traced = sum(statistic.size for statistic in tracemalloc.take_snapshot().statistics("filename"))
assert traced > 9.9e6, traced
spanprof.stop()
""",
        **HANDLER,
    )
    child = max(target.profiles("heap").files, key=lambda file: sum("[inherited]" in sample.frames for sample in file.samples))
    in_use = {
        name: sum(sample.bytes for sample in child.samples if name in sample.frames) / 1e6
        for name in ("[inherited]", "leak_arrays")
    }
    assert in_use["[inherited]"] == pytest.approx(20, rel=0.15)
    assert in_use["leak_arrays"] == pytest.approx(10, rel=0.22)
