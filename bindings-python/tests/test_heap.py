"""Heap profiles of real programs: allocated and live bytes compared with known allocations, and the safety of the allocator
hooks beside other allocators, threads, restarts and forks."""

from __future__ import annotations

import sys

import pytest

PROGRAM = """
import os, sys, threading, time
import spanprof

BLOCK = 10_000
kept = []

def leak(megabytes):
    for _ in range(megabytes * 1_000_000 // BLOCK):
        kept.append(bytes(BLOCK))

def churn(megabytes):
    for _ in range(megabytes * 1_000_000 // BLOCK):
        bytes(BLOCK)

def start(**settings):
    # At a fixed interval.
    assert spanprof.start(heap=True, cpu=False, cpu_budget=0, **{"heap_interval": 65_536, **settings})

def live_samples():
    return spanprof.stats()["heap.live_samples"]
"""


def megabytes(target, profile_type: str, function: str, **labels: str) -> float:
    """Megabytes of the stacks through a function, of all files."""
    samples = target.profiles(profile_type).through(function)
    matching = [sample for sample in samples if labels.items() <= sample.labels.items()]
    return sum(sample.bytes for sample in matching) / 1e6


def test_a_leak_is_in_use_and_every_allocation_is_counted_under_function_and_label(run_target):
    target = run_target(
        PROGRAM
        + """
start()
with spanprof.tag_wrapper({"tenant": "a"}):
    leak(64)
with spanprof.tag_wrapper({"tenant": "b"}):
    churn(64)
assert spanprof.stop() is True
"""
    )
    # About 900 samples: six standard errors are 19 %.
    assert megabytes(target, "heap", "leak", tenant="a") == pytest.approx(64, rel=0.19)
    assert megabytes(target, "allocs", "leak", tenant="a") == pytest.approx(64, rel=0.19)
    assert megabytes(target, "allocs", "churn", tenant="b") == pytest.approx(64, rel=0.19)
    assert megabytes(target, "heap", "churn") < 1
    (profile,) = target.profiles("heap").files
    assert (profile.types, profile.period) == ([("inuse_space", "bytes"), ("inuse_objects", "count")], 65_536)
    (allocated,) = target.profiles("allocs").files
    assert allocated.types == [("alloc_space", "bytes"), ("alloc_objects", "count")]
    objects = sum(sample.count for sample in target.profiles("heap").through("leak"))
    assert objects == pytest.approx(6400, rel=0.19)


def test_without_the_setting_no_allocator_is_replaced(run_target):
    target = run_target(
        PROGRAM
        + """
spanprof.start(heap=False)
leak(20)
assert spanprof.stats()["runtime.python.heap_domains"] == ""
assert spanprof.stats()["heap.samples"] == 0
spanprof.stop()
"""
    )
    assert target.profiles("heap").files == [] and target.profiles("allocs").files == []


def test_freed_objects_leave_the_profile_and_earlier_objects_are_unknown(run_target):
    target = run_target(
        PROGRAM
        + """
leak(30)
before = list(kept)
start(heap_interval=16_384)
kept.clear()
leak(20)
assert 800 < live_samples() < 1050, live_samples()
kept.clear()
assert live_samples() < 100, live_samples()
del before
leak(10)
spanprof.stop()
"""
    )
    assert megabytes(target, "heap", "leak") == pytest.approx(10, rel=0.15)


def test_a_reallocated_object_is_in_use_once_with_its_last_size(run_target):
    target = run_target(
        PROGRAM
        + """
def grow():
    buffer = bytearray()
    for _ in range(400):
        buffer += bytes(50_000)
    return buffer

start(heap_interval=4096)
grown = grow()
numbers = []
def fill():
    for number in range(1_000_000):
        numbers.append(None)
fill()
spanprof.stop()
"""
    )
    assert megabytes(target, "heap", "grow") == pytest.approx(20, rel=0.2)
    assert megabytes(target, "heap", "fill") == pytest.approx(8, rel=0.2)


def approximately(megabytes: float):
    return pytest.approx(megabytes, rel=0.15)


def ages(samples, function: str) -> dict[str | None, float]:
    """Megabytes of the stacks through a function, by the label `age`."""
    megabytes: dict[str | None, float] = {}
    for sample in samples:
        if function in sample.frames:
            age = sample.labels.get("age")
            megabytes[age] = megabytes.get(age, 0) + sample.bytes / 1e6
    return megabytes


def test_old_objects_are_those_of_the_leak_and_new_objects_those_of_the_churn(run_target):
    target = run_target(
        PROGRAM
        + """
recent = []

def request():
    # Freed two requests later.
    recent.append([bytes(BLOCK) for _ in range(200)])
    del recent[:-2]

start(heap_interval=4096, upload_interval=3600)
for window in range(9):
    leak(2)
    request()
    assert window == 8 or spanprof.flush(10)
spanprof.stop()
"""
    )
    # Nine windows. The objects of the first three were in six earlier profiles or more. Nine of ten objects are sampled.
    last = target.profiles("heap").files[-1].samples
    leaked = {"old": approximately(6), "survived": approximately(10), "new": approximately(2)}
    assert ages(last, "leak") == leaked
    requested = ages(last, "request")
    # Up to CPython 3.10 a function keeps the frame of its first call, one object of less than 1 KiB. If sampled, its weight is
    # close to the interval.
    assert requested.pop("old", 0) < 0.01
    assert requested == {"survived": approximately(2), "new": approximately(2)}
    assert not any("age" in sample.labels for sample in target.profiles("allocs").samples)


def test_a_reallocated_object_is_new(run_target):
    target = run_target(
        PROGRAM
        + """
start(heap_interval=4096, upload_interval=3600)

def make():
    return [bytearray(1_000_000) for _ in range(2)]

def grow(buffer):
    buffer.extend(bytes(1_000_000))

buffers = make()
assert spanprof.flush(10)
grow(buffers[0])
spanprof.stop()
"""
    )
    last = target.profiles("heap").files[-1].samples
    assert ages(last, "grow") == {"new": pytest.approx(2, rel=0.3)}
    assert ages(last, "make") == {"survived": approximately(1)}


def test_the_profile_can_be_stopped_started_and_switched_while_objects_live(run_target):
    run_target(
        PROGRAM
        + """
for _ in range(20):
    start(heap_interval=1024)
    leak(2)
    assert live_samples() >= 190
    spanprof.update(heap=False)
    assert live_samples() == 0
    leak(1)
    kept.clear()
    leak(1)
    assert live_samples() == 0
    spanprof.update(heap=True)
    leak(2)
    assert live_samples() >= 190
    assert spanprof.stop() is True
    kept.clear()
"""
    )


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("allocator", ["pymalloc", "malloc", "debug", "pymalloc_debug"])
def test_tracemalloc_and_every_allocator_of_the_interpreter_keep_working(run_target, order, allocator):
    target = run_target(
        PROGRAM
        + f"""
import tracemalloc
if {order!r} == "before":
    tracemalloc.start()
start(heap_interval=16_384)
if {order!r} == "after":
    tracemalloc.start()
leak(30)
traced = sum(statistic.size for statistic in tracemalloc.take_snapshot().statistics("filename"))
assert traced > 29e6, traced
# Stopped, tracemalloc restores the allocators that it saved at its start.
tracemalloc.stop()
churn(10)
spanprof.update(heap=False)
spanprof.update(heap=True)
kept.clear()
leak(20)
spanprof.update(heap=False)
tracemalloc.start()
spanprof.update(heap=True)
leak(10)
spanprof.stop()
tracemalloc.stop()
leak(10)
""",
        PYTHONMALLOC=allocator,
    )
    # Each change of `heap` begins anew.
    assert megabytes(target, "heap", "leak") == pytest.approx(10, rel=0.15)


def test_threads_that_free_each_others_objects_during_restarts_and_cpu_samples_compute_the_same(run_target):
    target = run_target(
        PROGRAM
        + """
import collections, queue
handed = queue.Queue(200)
ends = time.monotonic() + 4
totals = collections.Counter()

def produce(number):
    while time.monotonic() < ends:
        handed.put([bytes(size) for size in (8, 100, 600, 5000, 70_000)] + [{str(n): n} for n in range(20)])
        totals["put", number] += 1

def consume(number):
    while True:
        objects = handed.get()
        if objects is None:
            return
        assert [len(item) for item in objects[:5]] == [8, 100, 600, 5000, 70_000]
        assert objects[24] == {"19": 19}
        totals["got", number] += 1

def restart():
    while time.monotonic() < ends:
        spanprof.start(heap=True, heap_interval=256, heap_live_samples=1024, sample_rate=1000)
        time.sleep(0.05)
        spanprof.update(heap=False)
        spanprof.update(heap=True, heap_interval=4096)
        time.sleep(0.05)
        spanprof.stop()

producers = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
consumers = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
restarts = threading.Thread(target=restart)
for thread in producers + consumers + [restarts]:
    thread.start()
for thread in producers + [restarts]:
    thread.join()
for _ in consumers:
    handed.put(None)
for thread in consumers:
    thread.join()
put = sum(count for (kind, _), count in totals.items() if kind == "put")
got = sum(count for (kind, _), count in totals.items() if kind == "got")
assert put == got > 100, (put, got)
print("done", put)
""",
        timeout=120,
    )
    assert "done" in target.stdout


def test_more_live_objects_than_the_limit_are_thinned_and_the_estimate_stays_right(run_target):
    target = run_target(
        PROGRAM
        + """
start(heap_interval=1024, heap_live_samples=1024)
for _ in range(20):
    leak(2)
    spanprof.flush(5)
stats = spanprof.stats()
assert stats["heap.thinned"] > 500 and stats["heap.interval"] > 1024, stats
# The drain thread applies the limit; this thread has allocated since.
assert live_samples() <= 1100, live_samples()
print(max(os.listdir(os.environ["SPANPROF_FILE_DIRECTORY"])))
spanprof.stop()
"""
    )
    last = target.profiles("heap").files[-1]
    in_use = sum(sample.bytes for sample in last.samples if "leak" in sample.frames) / 1e6
    assert in_use == pytest.approx(40, rel=0.2)


def test_a_forked_child_has_the_objects_of_its_parent_marked_as_inherited(run_target):
    target = run_target(
        PROGRAM
        + """
start()
leak(40)
pid = os.fork()
if pid == 0:
    del kept[: len(kept) // 2]
    leak(10)
    spanprof.stop()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
leak(5)
spanprof.stop()
"""
    )
    child, parent = sorted(
        (
            {
                name: sum(sample.bytes for sample in profile.samples if name in sample.frames) / 1e6
                for name in ("[inherited]", "leak")
            }
            for profile in target.profiles("heap").files
        ),
        key=lambda profile: profile["leak"],
    )
    assert child == {"[inherited]": pytest.approx(20, rel=0.2), "leak": pytest.approx(10, rel=0.25)}
    inherited = [sample for profile in target.profiles("heap").files for sample in profile.samples]
    assert set(ages(inherited, "[inherited]")) == {"old"}
    assert parent == {"[inherited]": 0, "leak": pytest.approx(45, rel=0.15)}


def test_forks_while_threads_allocate_leave_working_children(run_target):
    run_target(
        PROGRAM
        + """
start(heap_interval=512)
stop = threading.Event()

def allocate():
    while not stop.is_set():
        [bytes(size) for size in range(0, 3000, 100)]

threads = [threading.Thread(target=allocate, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for number in range(30):
    pid = os.fork()
    if pid == 0:
        leak(1)
        assert live_samples() > 100
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, number
stop.set()
for thread in threads:
    thread.join()
spanprof.stop()
""",
        timeout=120,
    )


def test_a_program_that_ends_while_daemon_threads_allocate_ends_as_without_the_profiler(run_target):
    for _ in range(5):
        run_target(
            PROGRAM
            + """
start(heap_interval=256)

def allocate():
    while True:
        [bytes(size) for size in range(0, 3000, 100)]

for _ in range(3):
    threading.Thread(target=allocate, daemon=True).start()
time.sleep(0.2)
sys.exit(3)
""",
            expect=3,
        )


def test_a_failed_allocation_is_the_same_error(run_target):
    run_target(
        PROGRAM
        + """
start(heap_interval=1)
for _ in range(100):
    try:
        bytes(1 << 60)
        raise SystemExit("no error")
    except MemoryError:
        pass
buffer = bytearray(1000)
try:
    buffer.extend(bytes(1 << 60))
except MemoryError:
    pass
assert len(buffer) == 1000
spanprof.stop()
"""
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="interpreters with a GIL of their own exist from 3.12 on")
def test_interpreters_with_their_own_gil_allocate_beside_the_profiled_one(run_target):
    run_target(
        PROGRAM
        + """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
start(heap_interval=256)

def run():
    for _ in range(5):
        interpreter = interpreters.create()
        interpreters.run_string(interpreter, "x = [bytes(n % 3000) for n in range(20_000)]; del x")
        interpreters.destroy(interpreter)

threads = [threading.Thread(target=run) for _ in range(3)]
for thread in threads:
    thread.start()
leak(20)
for thread in threads:
    thread.join()
assert spanprof.stats()["heap.samples"] > 1000
spanprof.stop()
"""
    )
