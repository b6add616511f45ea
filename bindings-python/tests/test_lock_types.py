"""The locks that a program gets while waits for locks are reported behave as plain locks."""

from __future__ import annotations

import json

import pytest

BEHAVIOR = r"""
import _thread, copy, gc, inspect, json, pickle, re, signal, sys, threading, time, warnings, weakref
import spanprof

warnings.simplefilter("ignore")
PLAIN = {"Lock": threading.Lock, "RLock": threading.RLock}
earlier = {kind: new() for kind, new in PLAIN.items()}
spanprof.start(lock=True)
NATIVE = {"Lock": threading.Lock, "RLock": threading.RLock}
assert all(type(NATIVE[kind]()) is not type(lock) for kind, lock in earlier.items())

class Stop(Exception):
    pass

def stop(*ignored):
    raise Stop("raised by a signal handler")

def outcome(call):
    try:
        value = call()
    except BaseException as error:
        value = f"{type(error).__name__}: {error}"
    return re.sub(r"0x[0-9a-f]+|owner=[0-9]{2,}", "X", repr(value))

def on_thread(call):
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(outcome(call)))
    thread.start()
    thread.join()
    return outcomes[0]

def interrupted(lock, **arguments):
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        return lock.acquire(**arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)

def continued(lock):
    calls = []
    signal.signal(signal.SIGALRM, lambda *ignored: calls.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    started = time.monotonic()
    try:
        return lock.acquire(timeout=0.2), len(calls) > 1, time.monotonic() - started >= 0.2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)

def held_elsewhere(new, call):
    lock, is_held, is_done = new(), threading.Event(), threading.Event()
    def hold():
        with lock:
            is_held.set()
            is_done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        return call(lock)
    finally:
        is_done.set()
        thread.join()

class Index:
    def __repr__(self):
        return "Index()"

    def __index__(self):
        return 1

def cases(kind, new):
    lock = new()
    plain_type = type(earlier[kind])
    ARGUMENTS = [
        ((), {}), ((True,), {}), ((False,), {}), ((1,), {}), ((0,), {}), ((None,), {}), (("x",), {}), ((1.5,), {}),
        ((Index(),), {}), ((True, 1), {}), ((True, 0), {}), ((True, 0.0), {}), ((True, -1), {}), ((True, -1.0), {}),
        ((True, -2), {}), ((True, -0.5), {}), ((True, None), {}), ((True, "1"), {}), ((True, float("nan")), {}),
        ((True, float("inf")), {}), ((True, 1e100), {}), ((True, 10**30), {}), ((True, 1e9), {}), ((True, 2e9), {}),
        ((True, True), {}), ((False, 1), {}), ((False, -1), {}), ((False, 0), {}), ((True, 1, 2), {}),
        ((), {"blocking": False}), ((), {"blocking": True, "timeout": 0.5}), ((), {"timeout": 2}), ((), {"timeout": -1}),
        ((), {"blocking": False, "timeout": 1}), ((), {"wait": True}), ((True,), {"blocking": True}),
        ((True,), {"timeout": 1}), ((True, 1), {"timeout": 1}), ((), {"timeout": Index()}),
    ]
    for values, keywords in ARGUMENTS:
        def free():
            return new().acquire(*values, **keywords)
        yield f"free {values} {keywords}", free
        timeout = values[1] if len(values) > 1 else keywords.get("timeout", -1)
        blocking = values[0] if values else keywords.get("blocking", True)
        if blocking is False or timeout in (0, 0.0):
            yield f"held {values} {keywords}", lambda: held_elsewhere(new, lambda held: held.acquire(*values, **keywords))
    yield "acquire name=a variable", lambda: new().acquire(**{"".join(["time", "out"]): 1})
    yield "with", lambda: lock.__enter__() and lock.__exit__(None, None, None)
    yield "exit without arguments", lambda: (lock.acquire(), lock.__exit__())
    yield "release a free lock", lambda: lock.release()
    yield "release elsewhere", lambda: (lock.acquire(), on_thread(lock.release))
    lock = new()
    yield "locked", lambda: (getattr(lock, "locked", str)(), lock.acquire(), getattr(lock, "locked", str)())
    yield "repr locked", lambda: lock
    yield "str locked", lambda: str(lock)
    yield "with a held lock raises in the body", lambda: exec("with lock: raise Stop('x')", {"lock": new(), "Stop": Stop})
    yield "repr free", lambda: new()
    yield "repr class", lambda: repr(type(new()))
    yield "names", lambda: (type(new()).__name__, type(new()).__qualname__, type(new()).__module__)
    yield "attributes", lambda: sorted(set(dir(new())) - {"__reduce__", "__weakref__"})
    yield "callable attributes", lambda: [name for name in dir(new()) if callable(getattr(new(), name))]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield f"pickle {protocol}", lambda: pickle.dumps(new(), protocol)
    yield "copy", lambda: copy.copy(new())
    yield "deepcopy", lambda: copy.deepcopy([new()])
    yield "weakref", lambda: (weakref.ref(lock)() is lock, weakref.ref(new())())
    yield "hash", lambda: hash(lock) == object.__hash__(lock) and len({lock, lock, new()})
    yield "equality", lambda: (lock == lock, lock == new(), lock != lock)
    yield "bool", lambda: bool(lock)
    yield "order", lambda: lock < new()
    yield "new attribute", lambda: setattr(lock, "attribute", 1)
    yield "isinstance of its type", lambda: isinstance(lock, type(new()))
    yield "isinstance of the plain type", lambda: isinstance(lock, plain_type)
    yield "an earlier lock is an instance", lambda: isinstance(earlier[kind], type(new()))
    yield "the plain type is a subclass", lambda: issubclass(plain_type, type(new()))
    yield "isinstance of others", lambda: (isinstance(1, type(new())), isinstance(lock, int), issubclass(int, type(new())))
    yield "class", lambda: lock.__class__
    yield "constructor", lambda: (isinstance(threading.Lock, type), inspect.isbuiltin(threading.Lock), threading.Lock)
    yield "constructor with an argument", lambda: new(1)
    yield "constructor with a keyword", lambda: new(name=1)
    yield "type with an argument", lambda: type(new())(1, a=2)
    yield "instance by type", lambda: type(new())()
    yield "subclass", lambda: type("Own", (type(new()),), {"own": 1})().own
    yield "timeout", lambda: held_elsewhere(new, lambda held: held.acquire(timeout=0.01))
    yield "interrupted", lambda: held_elsewhere(new, interrupted)
    yield "interrupted with a timeout", lambda: held_elsewhere(new, lambda held: interrupted(held, timeout=30))
    yield "continued after a signal", lambda: held_elsewhere(new, continued)
    yield "reinit", lambda: (lock._at_fork_reinit(), lock, lock.acquire(False))
    yield "condition", lambda: [threading.Condition(new()).__enter__(), threading.Condition(new()).wait]
    yield "garbage", lambda: [gc.collect() >= 0, sys.getrefcount(new())]
    if kind == "RLock":
        recursive = new()
        yield "again", lambda: [recursive.acquire(), recursive.acquire(), recursive._is_owned(), recursive]
        yield "again without a wait", lambda: [recursive.acquire(False), recursive.acquire(timeout=0)]
        yield "owned elsewhere", lambda: on_thread(recursive._is_owned)
        yield "count", lambda: getattr(recursive, "_recursion_count", str)()
        yield "save and restore", lambda: recursive._acquire_restore(recursive._release_save())
        yield "restored", lambda: recursive
        yield "release all", lambda: [recursive.release() for _ in range(5)]
        yield "save when free", lambda: new()._release_save()
        for argument in (1, (), (1,), ("a", 1), (1, 2, 3), (0, 0), (-1, 0)):
            yield f"restore {argument}", lambda: new()._acquire_restore(argument)
        class Own(type(new())):
            def __init__(self, name):
                self.name = name
            def acquire(self, *values):
                self.values = values
                return super().acquire(*values)
        own = Own("mine")
        yield "own class", lambda: [own.acquire(True), own.values, own.name, isinstance(own, Own), own.__class__.__name__]
        yield "own class repr", lambda: own
        yield "own class weakref", lambda: weakref.ref(own)() is own
        yield "own class pickle", lambda: pickle.dumps(own)
        yield "isinstance of the own class", lambda: [isinstance(new(), Own), isinstance(earlier[kind], Own)]
        import abc
        yield "abstract class", lambda: type("Abstract", (type(new()), abc.ABC), {})().acquire()

outcomes = {}
for kind in PLAIN:
    for side, new in (("plain", PLAIN[kind]), ("native", NATIVE[kind])):
        # threading.RLock is a function that creates whichever lock is current.
        if side == "plain":
            spanprof.update(lock=False)
        else:
            spanprof.update(lock=True)
        assert (type(new()) is type(earlier[kind])) == (side == "plain"), (kind, side)
        for name, call in cases(kind, new):
            outcomes.setdefault(f"{kind}: {name}", {})[side] = outcome(call)
print(json.dumps(outcomes))
"""


def test_native_locks_behave_as_plain_locks_in_every_case(run_target):
    outcomes = json.loads(run_target(BEHAVIOR).stdout.splitlines()[-1])
    assert len(outcomes) > 150
    different = {name: sides for name, sides in outcomes.items() if sides.get("plain") != sides.get("native")}
    assert different == {}


def test_the_interpreters_own_tests_of_locks_pass_with_native_locks(run_target):
    pytest.importorskip("test.lock_tests", reason="this Python has no tests of its own")
    target = run_target(
        """
import sys, threading, unittest
from test import lock_tests
import spanprof

plain = type(threading.Lock())
spanprof.start(lock=True)
assert type(threading.Lock()) is not plain and type(threading.RLock()) is not type(threading._RLock())

class LockTests(lock_tests.LockTests):
    locktype = staticmethod(threading.Lock)

class RecursiveLockTests(lock_tests.RLockTests):
    locktype = staticmethod(threading.RLock)

class EventTests(lock_tests.EventTests):
    eventtype = staticmethod(threading.Event)

class ConditionTests(lock_tests.ConditionTests):
    condtype = staticmethod(threading.Condition)

class RecursiveConditionTests(lock_tests.ConditionTests):
    condtype = staticmethod(lambda lock=None: threading.Condition(lock or threading.RLock()))

class SemaphoreTests(lock_tests.SemaphoreTests):
    semtype = staticmethod(threading.Semaphore)

class BoundedSemaphoreTests(lock_tests.BoundedSemaphoreTests):
    semtype = staticmethod(threading.BoundedSemaphore)

class BarrierTests(lock_tests.BarrierTests):
    barriertype = staticmethod(threading.Barrier)

unittest.main(argv=["locks"], verbosity=0)
""",
        timeout=300,
        expect=None,
    )
    assert target.returncode == 0 and "OK" in target.stderr, target.stderr[-3000:]


def test_daemon_threads_that_wait_for_a_lock_do_not_disturb_the_end_of_the_interpreter(run_target):
    for _ in range(3):
        run_target(
            """
import threading, time
import spanprof

spanprof.start(lock=True)
locks = [threading.Lock(), threading.RLock(), threading.Lock()]
for lock in locks[:2]:
    lock.acquire()

def poll(lock):
    while True:
        lock.acquire(timeout=0.0005)

def take(lock):
    while True:
        with lock:
            time.sleep(0.0001)

for _ in range(4):
    for lock in locks[:2]:
        threading.Thread(target=poll, args=(lock,), daemon=True).start()
    threading.Thread(target=take, args=(locks[2],), daemon=True).start()
time.sleep(0.1)
"""
        )


def test_locks_are_plain_before_and_after_and_those_of_the_run_keep_working(run_target):
    run_target(
        """
import threading
import spanprof

PLAIN = [type(threading.Lock()), type(threading.RLock())]
ORIGINAL = dict(vars(threading))
INIT = threading.Semaphore.__init__

def types():
    return [type(threading.Lock()), type(threading.RLock())]

spanprof.start()
assert types() == PLAIN
spanprof.update(lock=True)
kept = [threading.Lock(), threading.RLock(), threading.Semaphore(1), threading.Condition()]
Lock, RLock = threading.Lock, threading._CRLock
assert not set(types()) & set(PLAIN)
spanprof.update(lock=False)
assert types() == PLAIN and [type(Lock()), type(RLock())] == PLAIN
spanprof.stop()
assert types() == PLAIN and threading.Semaphore.__init__ is INIT
assert all(vars(threading)[name] is value for name, value in ORIGINAL.items())
for lock in kept:
    count = [0]
    def add():
        for _ in range(2000):
            with lock:
                count[0] += 1
    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert count == [8000]
spanprof.start(lock=True)
assert types() == [type(kept[0]), type(kept[1])]
spanprof.stop()
"""
    )
