"""Waits for locks: totals of known truth, stacks, labels; waits that are not contention; restart, fork, gevent."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import json
import queue
import threading
import time
import spanprof

def run(*targets):
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore"])
def test_each_delay_is_the_time_for_which_another_thread_held_the_lock(run_target, kind):
    target = run_target(
        PROGRAM
        + f"""
spanprof.start(lock=True)
lock = threading.{kind}()
bounds = {{}}

for number in range(20):
    is_held, is_ready, times = threading.Event(), threading.Event(), {{}}

    def hold():
        with lock:
            is_held.set()
            is_ready.wait()
            time.sleep(0.03)
            times["before release"] = time.monotonic_ns()

    def contend():
        is_held.wait()
        with spanprof.tag_wrapper({{"number": str(number)}}):
            is_ready.set()
            times["before"] = time.monotonic_ns()
            with lock:
                times["after"] = time.monotonic_ns()

    run(hold, contend)
    bounds[number] = [times["before release"] - times["before"], times["after"] - times["before"]]
print(json.dumps(bounds))
spanprof.stop()
"""
    )
    profiles = target.profiles("lock")
    assert profiles.files[0].types == [("contentions", "count"), ("delay", "nanoseconds")]
    delays = {sample.labels["number"]: sample for sample in profiles.through("contend") if "number" in sample.labels}
    bounds = json.loads(target.stdout)
    assert set(delays) <= set(bounds)
    assert all(sample.count == 1 for sample in delays.values())
    # Shorter: the time from the clock of the program to the wait. Longer: up to the clock after the wait, with the GIL. A
    # thread that is preempted before its wait waits less, or not at all.
    exact = [
        number in delays and 0.99 * low <= delays[number].nanoseconds <= 1.01 * high
        for number, (low, high) in bounds.items()
    ]
    assert sum(exact) >= 10
    total = sum(sample.nanoseconds for sample in delays.values())
    assert total <= 1.01 * sum(high for _, high in bounds.values())
    leaf = "acquire" if kind == "Semaphore" else "contend"
    assert all(sample.leaf.endswith(leaf) for sample in delays.values())


def test_totals_of_waits_below_the_threshold_are_unbiased(run_target):
    target = run_target(
        PROGRAM
        + """
spanprof.start(lock=True, lock_threshold=0.02)
lock = threading.Lock()
is_held, may_release, truth = threading.Event(), threading.Event(), [0, 0]

def contend():
    lock.acquire()
    for _ in range(1000):
        started = time.monotonic_ns()
        # Waits 2 ms, a tenth of the threshold.
        assert not lock.acquire(timeout=0.002)
        truth[0] += time.monotonic_ns() - started
        truth[1] += 1

contend()
print(json.dumps(truth))
spanprof.stop()
"""
    )
    nanoseconds, contentions = json.loads(target.stdout)
    samples = target.profiles("lock").through("contend")
    # About 100 of the waits are recorded: a standard error of 10 %, and here five of them.
    assert sum(sample.nanoseconds for sample in samples) == pytest.approx(nanoseconds, rel=0.5)
    assert sum(sample.count for sample in samples) == pytest.approx(contentions, rel=0.5)
    # Each recorded one stands for the threshold.
    assert all(sample.nanoseconds % 20_000_000 == 0 or sample.nanoseconds > 20_000_000 for sample in samples)


def test_idle_waits_are_not_contention(run_target):
    target = run_target(
        PROGRAM
        + """
from concurrent.futures import ThreadPoolExecutor

spanprof.start(lock=True, lock_threshold=0)
work, done, condition, barrier = queue.Queue(), threading.Event(), threading.Condition(), threading.Barrier(2)

def get(): work.get()
def wait_for_event(): done.wait()
def wait_for_condition():
    with condition: condition.wait(0.2)
def wait_at_barrier(): barrier.wait()
def end_wait():
    time.sleep(0.2)
    work.put(1)
    done.set()
    barrier.wait()

run(get, wait_for_event, wait_for_condition, wait_at_barrier, end_wait)
with ThreadPoolExecutor(2) as pool:
    pool.submit(time.sleep, 0.01).result()
    time.sleep(0.2)
    pool.submit(time.sleep, 0.01).result()
sleeper = threading.Thread(target=time.sleep, args=(0.2,))
sleeper.start()
sleeper.join()
spanprof.stop()
"""
    )
    # Each of the waits takes 0.2 s. Short contention of the locks inside is real.
    assert all(sample.nanoseconds < 100_000_000 for sample in target.profiles("lock").samples)


def test_contention_for_the_mutex_of_a_queue_is_reported(run_target):
    target = run_target(
        PROGRAM
        + """
spanprof.start(lock=True)
work, is_held = queue.Queue(), threading.Event()

def hold():
    with work.mutex:
        is_held.set()
        time.sleep(0.1)

def contend():
    is_held.wait()
    work.put(1)

run(hold, contend)
spanprof.stop()
"""
    )
    samples = target.profiles("lock").through("contend")
    (sample,) = [sample for sample in samples if sample.nanoseconds > 50_000_000]
    assert [name.split(".")[-1] for name in sample.frames[:3]] == ["__enter__", "put", "contend"]


def test_waits_of_asyncio_tasks_have_their_stack_and_labels(run_target):
    target = run_target(
        PROGRAM
        + """
import asyncio

spanprof.start(lock=True)
truth = [0]

async def hold(lock, is_held):
    async with lock:
        is_held.set()
        await asyncio.sleep(0.05)

async def contend(lock, is_held, name):
    await is_held.wait()
    with spanprof.tag_wrapper(route=name):
        started = time.monotonic_ns()
        async with lock:
            truth[0] += time.monotonic_ns() - started

async def main():
    for name, lock in [("lock", asyncio.Lock()), ("semaphore", asyncio.Semaphore(1))] * 5:
        is_held = asyncio.Event()
        await asyncio.gather(hold(lock, is_held), contend(lock, is_held, name))

asyncio.run(main())
print(truth[0])
spanprof.stop()
"""
    )
    samples = target.profiles("lock").through("contend") or target.profiles("lock").through("main.<locals>.contend")
    assert sum(sample.nanoseconds for sample in samples) == pytest.approx(int(target.stdout), rel=0.2)
    assert sum(sample.count for sample in samples) == 10
    assert {sample.labels.get("route") for sample in samples} == {"lock", "semaphore"}
    assert all(sample.leaf.endswith("__aenter__") for sample in samples)


def test_a_child_reports_its_own_waits_only(run_target):
    target = run_target(
        PROGRAM
        + """
import os

spanprof.start(lock=True)
lock, is_held = threading.Lock(), threading.Event()

def hold():
    with lock:
        is_held.set()
        time.sleep(0.1)

def in_parent():
    is_held.wait()
    lock.acquire()

run(hold, in_parent)
# The parent holds the lock, with a wait that is not recorded yet.
child = os.fork()
if child == 0:
    lock.release()
    is_held.clear()
    def in_child():
        is_held.wait()
        with lock: pass
    run(hold, in_child)
    spanprof.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
lock.release()
spanprof.stop()
"""
    )
    samples = target.profiles("lock").samples
    for name in ("in_parent", "in_child"):
        (sample,) = [sample for sample in samples if sample.leaf == name]
        assert sample.count == 1 and sample.nanoseconds > 50_000_000


def test_a_restarted_profiler_measures_the_locks_of_the_run_before(run_target):
    target = run_target(
        PROGRAM
        + """
spanprof.start(lock=True)
lock = threading.Lock()

def contend():
    def hold():
        with lock:
            is_held.set()
            time.sleep(0.1)
    def wait():
        is_held.wait()
        with lock: pass
    is_held = threading.Event()
    run(hold, wait)

spanprof.stop()
contend()
spanprof.start(lock=True)
contend()
spanprof.stop()
"""
    )
    assert sum(sample.count for sample in target.profiles("lock").samples if sample.nanoseconds > 50_000_000) == 1


def test_no_wait_has_the_labels_of_another_thread_or_task(run_target):
    target = run_target(
        PROGRAM
        + """
import asyncio

spanprof.start(lock=True, lock_threshold=0)
locks = [threading.Lock(), threading.RLock(), threading.Semaphore(1)]

def route_a(lock):
    with lock: time.sleep(0.0002)
def route_b(lock):
    with lock: time.sleep(0.0002)
async def route_c(lock):
    async with lock: await asyncio.sleep(0.0002)
async def route_d(lock):
    async with lock: await asyncio.sleep(0.0002)

def work():
    for number in range(100):
        for lock in locks:
            route = (route_a, route_b)[number % 2]
            with spanprof.tag_wrapper(route=route.__name__):
                route(lock)

async def task(lock):
    for number in range(50):
        route = (route_c, route_d)[number % 2]
        with spanprof.tag_wrapper(route=route.__name__):
            await route(lock)

async def main():
    lock = asyncio.Lock()
    await asyncio.gather(*(task(lock) for _ in range(8)))

run(*[work] * 6, lambda: asyncio.run(main()))
spanprof.stop()
"""
    )
    waits = 0
    for sample in target.profiles("lock").samples:
        for route in ("route_a", "route_b", "route_c", "route_d"):
            if route in sample.frames:
                assert sample.labels.get("route") == route
                waits += sample.count
    assert waits > 500


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
@pytest.mark.parametrize("patched", ["before", "after"])
def test_programs_with_patched_locks_work_and_their_waits_are_measured(run_target, patched, library):
    pytest.importorskip(library)
    start = "import spanprof, threading; spanprof.start(lock=True)\nearly = [threading.Lock(), threading.RLock()]\n"
    patch = {
        "gevent": "from gevent import monkey; monkey.patch_all()\n",
        "eventlet": "import eventlet; eventlet.monkey_patch()\n",
    }[library]
    target = run_target(
        (start + patch if patched == "after" else patch + start)
        + PROGRAM
        + """
count = 0
locks = [threading.Lock(), threading.RLock(), threading.Semaphore(1), threading.Condition()]

def add():
    global count
    for lock in locks:
        for _ in range(50):
            with lock:
                before = count
                time.sleep(0)
                if lock is locks[0]:
                    count = before + 1

run(add, add, add, add)
assert count == 200, count
for lock in early:
    with lock: pass

lock, truth = threading.Lock(), 0
for number in range(20):
    is_held = threading.Event()

    def hold():
        with lock:
            is_held.set()
            time.sleep(0.02)

    def contend():
        global truth
        is_held.wait()
        with spanprof.tag_wrapper(number=str(number)):
            started = time.monotonic_ns()
            with lock:
                truth += time.monotonic_ns() - started

    run(hold, contend)

work, condition = queue.Queue(), threading.Condition()

def get(): work.get()
def wait():
    with condition: condition.wait(0.2)
def put():
    time.sleep(0.2)
    work.put(1)

run(get, wait, put)
print(truth)
patched = type(threading.Lock())
spanprof.stop()
assert type(threading.Lock()) is patched and patched.__module__.startswith(("gevent", "eventlet")), patched
"""
    )
    profiles = target.profiles("lock")
    samples = profiles.through("contend")
    assert sum(sample.nanoseconds for sample in samples) == pytest.approx(int(target.stdout), rel=0.2)
    assert sum(sample.count for sample in samples) == 20
    assert {sample.labels.get("number") for sample in samples} == {str(number) for number in range(20)}
    idle = profiles.through("get") + profiles.through("wait") + profiles.through("Condition.wait")
    assert sum(sample.nanoseconds for sample in idle) < 100_000_000


OBSERVED = """
import copy, dataclasses, inspect, multiprocessing, pickle, pickletools, sys, threading, weakref
import asyncio

FACTORIES = {"Lock": threading.Lock, "RLock": threading.RLock, "Semaphore": threading.Semaphore,
             "Condition": threading.Condition, "asyncio.Lock": asyncio.Lock, "asyncio.Semaphore": asyncio.Semaphore}

@dataclasses.dataclass
class Guarded:
    lock: object = dataclasses.field(default_factory=threading.Lock)

def outcome(action):
    try:
        return repr(action())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def without_address(text):
    import re
    return re.sub("0x[0-9a-f]+", "0x", text)

def observed():
    for name, factory in FACTORIES.items():
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            yield f"{name} pickled by {protocol}", lambda: pickle.loads(pickle.dumps(factory, protocol)) is factory
        yield f"{name} in Python", lambda: pickle.loads(pickle._dumps(factory)) is factory
        yield f"{name} copied", lambda: [copy.copy(factory) is factory, copy.deepcopy(factory) is factory]
        for attribute in ("__module__", "__name__", "__qualname__"):
            yield f"{name}.{attribute}", lambda: getattr(factory, attribute)
        yield f"{name} callable", lambda: [callable(factory), inspect.isclass(factory), inspect.isbuiltin(factory)]
        if name.startswith("asyncio"):
            continue
        lock = factory()
        yield f"{name}() repr", lambda: without_address(repr(lock))
        # `copyreg` stores the slots of a class that it has pickled.
        yield f"{name}() dir", lambda: sorted(set(dir(lock)) - {"__slotnames__"})
        yield f"{name}() class", lambda: [lock.__class__.__name__, lock.__class__.__module__, isinstance(lock, type(lock))]
        yield f"{name}() pickled", lambda: pickle.dumps(lock)
        yield f"{name}() copied", lambda: copy.deepcopy(lock)
        yield f"{name}() weak", lambda: weakref.ref(lock)() is lock
        yield f"{name}() attribute", lambda: setattr(lock, "x", 1)
        yield f"{name}() equal", lambda: [lock == lock, lock == factory(), hash(lock) == hash(lock)]
    yield "dataclass", lambda: pickle.loads(pickle.dumps(Guarded.__dataclass_fields__["lock"].default_factory)) is threading.Lock
    yield "other builtins", lambda: [pickle.loads(pickle.dumps(value)) == value for value in (len, [].append, print)][::2]
    yield "bound method", lambda: pickle.loads(pickle.dumps([1].count))(1)

def rows():
    return [f"{name}: {outcome(action)}" for name, action in observed()]
"""


def test_the_program_observes_the_same_locks_as_without_the_profile(run_target):
    plain = run_target(OBSERVED + "print(chr(10).join(rows()))").stdout.splitlines()
    measured = run_target(
        "import spanprof\nspanprof.start(lock=True)\n" + OBSERVED + "print(chr(10).join(rows()))\nspanprof.stop()"
    ).stdout.splitlines()
    assert plain and measured == plain


def test_a_spawned_process_receives_the_factory_of_locks(run_target):
    target = run_target(
        """
import multiprocessing, pickle, threading

def child(factory, kept):
    print(factory is threading.Lock, kept is threading.Lock, factory().acquire())

if __name__ == "__main__":
    import spanprof
    spanprof.start(lock=True)
    kept = threading.Lock
    process = multiprocessing.get_context("spawn").Process(target=child, args=(threading.Lock, kept))
    process.start()
    process.join()
    spanprof.stop()
    print(pickle.loads(pickle.dumps(kept)) is threading.Lock)
"""
    )
    assert target.stdout.split() == ["True", "True", "True", "True"]
