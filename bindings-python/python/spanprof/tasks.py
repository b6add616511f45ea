"""Reads the stacks of suspended asyncio tasks: once per upload interval those of all tasks, for the profile of threads, and while
requests are open what their tasks await, for the profile of time off CPU. Not here: the stacks of threads (native core).

A thread of this module reads the tasks. It is an ordinary Python thread, which yields to others like any thread of the program, and it
sleeps while no request is open. It exists where the program has imported asyncio.

A stack has the frames from the innermost await to the task's coroutine, then those of a task that awaits it, and so on.

| version | change | handled in |
|---|---|---|
| up to 3.11 | ``asyncio.tasks._all_tasks`` holds every task | ``_all_tasks`` |
| 3.12, 3.13 | ``_scheduled_tasks`` and ``_eager_tasks`` | ``_all_tasks`` |
| 3.12 | ``Task.get_context``; before, the callback of the awaited future has the context | ``_context_id`` |
| 3.14 | lists in C, by event loop; ``_asyncio_awaited_by`` | ``_running_loops``, ``_awaiter`` |
"""

from __future__ import annotations

import math
import os
import sys
import time
from _thread import allocate_lock, start_new_thread

from .imports import when_imported
from .interruptions import is_interruption
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from types import CodeType, FrameType
    from typing import Any, Iterator

    Stack = list[tuple[CodeType, int]]

#: Further tasks are not shown.
_MAX_TASKS = 10_000
#: Awaits of a task, and tasks that await each other.
_MAX_DEPTH = 256
#: Attributes of coroutines, generators and asynchronous generators: frame, awaited object, whether it runs.
_ATTRIBUTES = (
    ("cr_frame", "cr_await", "cr_running"),
    ("gi_frame", "gi_yieldfrom", "gi_running"),
    ("ag_frame", "ag_await", "ag_running"),
)

#: Functions that await a thread to which they pass the context: the thread is sampled. (File, name.)
_AWAIT_A_THREAD = (
    ("asyncio/threads.py", "to_thread"),
    ("anyio/_backends/_asyncio.py", "run_sync_in_worker_thread"),
    ("asgiref/sync.py", "__call__"),
)
#: Seconds between two samples of what tasks await, on average, and the longest.
_AWAIT_SECONDS = 0.04
_LONGEST_SECONDS = 1.0
#: Part of the time in which the thread may run: at all times, and more at the start of a burst of requests, until it has used the CPU
#: seconds that it is given for a burst. They come back at the rate of the first.
_LOAD = 1 / 200
_BURST_LOAD = 1 / 10
_BURST_CPU_SECONDS = 0.2
#: Part of the time since a task has moved after which the next sample is taken.
_REST = 1 / 64

#: Tasks in a sample. Of more, a random part represents all.
_MAX_SAMPLED = 64
#: Longest sleep while only the profile of threads needs the thread.
_WINDOW_SECONDS = 3600.0

#: Seconds for which the end of the thread is awaited.
_END_SECONDS = 1.0

#: Id of the process whose thread runs.
_running_in: int | None = None
#: Released to wake the thread, and by the thread at its end.
_wakeup = allocate_lock()
_ended = allocate_lock()
#: False where gevent or eventlet has replaced threads by greenlets, which share their thread with the program.
_has_threads = type(start_new_thread) is type(len)


def follow_settings() -> None:
    """Starts the thread if the settings need it; else wakes it, and waits for its end."""
    global _running_in, _wakeup, _ended
    if not _has_threads:
        return
    threads_seconds, measures_waits = _settings()
    is_on = threads_seconds is not None or measures_waits
    if _running_in == os.getpid():
        native.wake_tasks_thread()
        if _wakeup.locked():
            _wakeup.release()
        if not is_on and _ended.acquire(True, _END_SECONDS):
            _ended.release()
        return
    if not is_on:
        return
    _running_in = os.getpid()
    # In a forked child the parent's locks are in any state.
    _wakeup, _ended = allocate_lock(), allocate_lock()
    _wakeup.acquire()
    _ended.acquire()
    try:
        start_new_thread(_run, ())
    except BaseException as error:  # A RuntimeError: no more threads.
        _running_in = None
        if is_interruption(error):
            raise


def _settings() -> tuple[float | None, bool]:
    """The interval of the profile of threads, and whether to sample what tasks await, which needs asyncio."""
    threads_seconds, measures_waits = native.suspended_tasks_settings()
    return threads_seconds, measures_waits and "asyncio" in sys.modules


def follow_imports() -> None:
    """Follows the settings when the program imports asyncio."""
    when_imported("asyncio", lambda _: follow_settings())


def store_now() -> None:
    """Stores the tasks of this moment, before the last window."""
    if _running_in == os.getpid() and native.suspended_tasks_settings()[0] is not None:
        try:
            native.store_suspended_tasks(_stacks())
        except Exception as error:
            if is_interruption(error):
                raise
            native.store_suspended_tasks([])


def _run() -> None:
    global _running_in
    ended = _ended
    native.begin_storing_tasks()
    awaiting = _Awaiting()
    stored, opened = -math.inf, 0
    while True:
        threads_seconds, measures_waits = _settings()
        if threads_seconds is None and not measures_waits:
            break
        if threads_seconds is not None and time.monotonic() >= stored + threads_seconds:
            store_now()
            stored = time.monotonic()
        # Without waits to measure, an opened context wakes nothing.
        at_least, at_most = awaiting.sample() if measures_waits else (_WINDOW_SECONDS, _WINDOW_SECONDS)
        window = math.inf if threads_seconds is None else max(0.0, stored + threads_seconds - time.monotonic())
        if _wakeup.acquire(True, min(at_least, window)):
            continue
        left = min(at_most, window) - at_least
        if left > 0:
            opened = native.wait_for_contexts(opened, left if left < math.inf else None)
        if at_most == math.inf:
            awaiting.resume()
    _running_in = None
    # The setting may have been turned on since.
    follow_settings()
    ended.release()


class _Awaiting:
    """Samples of what the tasks of open requests await. Each represents the time since the last one."""

    def __init__(self) -> None:
        self._seen: list[Any] = []
        #: Longer each time that no task exists.
        self._pause = _AWAIT_SECONDS
        #: CPU seconds left for a burst, and since when they have not grown by `_LOAD`.
        self._left, self._counted = _BURST_CPU_SECONDS, time.monotonic()
        self.resume()

    def resume(self) -> None:
        """Forgets the time since the last sample."""
        self._last = self._moved = time.monotonic()

    def sample(self) -> tuple[float, float]:
        """Samples now. The seconds until the next sample, at least, and at most while no context is opened."""
        now, began = time.monotonic(), time.thread_time()
        elapsed = now - self._last
        if elapsed < _AWAIT_SECONDS / 4:
            # It was resumed: a sample would represent no time.
            return _AWAIT_SECONDS, _AWAIT_SECONDS
        try:
            tasks = _live_tasks()
            awaited = _awaited(tasks, elapsed)
        except Exception as error:
            if is_interruption(error):
                raise
            return _LONGEST_SECONDS, math.inf
        self._last = now
        native.submit_awaiting_tasks(awaited)
        seen = [(context, stack[0]) for context, stack, _ in awaited]
        if seen != self._seen:
            self._moved, self._seen = now, seen
        self._pause = _AWAIT_SECONDS if tasks else min(2 * self._pause, _LONGEST_SECONDS)
        if not tasks:
            return self._pause, math.inf
        if not native.has_open_requests():
            return _AWAIT_SECONDS, math.inf
        cost = time.thread_time() - began
        # At random, so that no task of the same period is missed.
        seconds = max(_AWAIT_SECONDS, cost / self._load(now, cost)) * (0.5 + os.urandom(1)[0] / 256)
        return seconds, max(seconds, min((now - self._moved) * _REST, _LONGEST_SECONDS))

    def _load(self, now: float, cost: float) -> float:
        """The part of the time in which the thread may run, after a sample of `cost` CPU seconds. What a burst awaits after its last
        sample is lost: so samples of a short burst are not far apart."""
        self._left = max(0.0, min(self._left + (now - self._counted) * _LOAD, _BURST_CPU_SECONDS) - cost)
        self._counted = now
        return _LOAD + _BURST_LOAD * self._left / _BURST_CPU_SECONDS


def _live_tasks() -> list[Any]:
    asyncio_tasks = sys.modules.get("asyncio.tasks")
    return [task for task in _all_tasks(asyncio_tasks) if not task.done()][:_MAX_TASKS] if asyncio_tasks is not None else []


def _stacks() -> list[tuple[int, Stack]]:
    """Context id and stack, leaf first, of each suspended task."""
    tasks = _live_tasks()
    awaiters = _awaiters(tasks)
    stacks = [(_context_id(task), _stack(task, awaiters)) for task in tasks]
    return [(context, stack) for context, stack in stacks if stack]


def _awaited(tasks: list[Any], elapsed: float) -> list[tuple[int, Stack, float]]:
    """Context id, stack and seconds of tasks of open requests that await neither another such task nor a thread. The tasks of a
    request share the time."""
    contexts = [_context_id(task) for task in tasks]
    requests = native.open_requests_of(contexts)
    own = {id(task): (task, context, request) for task, context, request in zip(tasks, contexts, requests) if request}
    if not own:
        return []
    awaiters = _awaiters(tasks)
    awaiting_others = {id(awaiter) for child, awaiter in awaiters.items() if child in own}
    waiting = [it for it in own.values() if id(it[0]) not in awaiting_others]
    shares: dict[int, int] = {}
    for _, _, request in waiting:
        shares[request] = shares.get(request, 0) + 1
    step = math.ceil(len(waiting) / _MAX_SAMPLED)
    first = int.from_bytes(os.urandom(4), "little") % step if step > 1 else 0
    sampled = [(context, _stack(task, awaiters), elapsed * step / shares[request]) for task, context, request in waiting[first::step or 1]]
    return [(context, stack, seconds) for context, stack, seconds in sampled if stack and not _awaits_a_thread(stack[0][0])]


def _stack(task: Any, awaiters: dict[int, Any]) -> Stack:
    """The frames of a task's awaits and of the tasks that await it, leaf first; none if it runs now."""
    stack = _suspended(task)
    seen = {id(task)}
    awaiter = _awaiter(task, awaiters) if stack else None
    while awaiter is not None and id(awaiter) not in seen and len(seen) < _MAX_DEPTH:
        seen.add(id(awaiter))
        stack += _suspended(awaiter)
        awaiter = _awaiter(awaiter, awaiters)
    return stack


def _awaits_a_thread(code: CodeType) -> bool:
    return any(code.co_name == name and code.co_filename.endswith(file) for file, name in _AWAIT_A_THREAD)


def _all_tasks(asyncio_tasks: Any) -> list[Any]:
    tasks_by_id: dict[int, Any] = {}
    for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks"):
        tasks = getattr(asyncio_tasks, name, ())
        # As in `asyncio.all_tasks`: another thread may change a set meanwhile.
        for _ in range(1000):
            try:
                tasks_by_id.update((id(task), task) for task in list(tasks))
                break
            except RuntimeError as error:
                if is_interruption(error):
                    raise
    if sys.version_info >= (3, 14):
        for loop in _running_loops():
            tasks_by_id.update((id(task), task) for task in asyncio_tasks.all_tasks(loop))
    return list(tasks_by_id.values())


def _running_loops() -> Iterator[Any]:
    """The event loops that run in any thread."""
    frame: FrameType | None
    for frame in sys._current_frames().values():
        while frame is not None:
            code = frame.f_code
            if code.co_name == "run_forever" and code.co_filename.endswith("base_events.py"):
                yield frame.f_locals["self"]
            elif code.co_name == "run" and code.co_filename.endswith("runners.py"):
                # The runner of a loop without Python frames.
                loop = getattr(frame.f_locals.get("self"), "_loop", None)
                if loop is not None:
                    yield loop
            frame = frame.f_back


def _suspended(task: Any) -> Stack:
    """The frames of a task's awaits, leaf first; none if it runs now."""
    stack: Stack = []
    awaited = task.get_coro()
    while awaited is not None and len(stack) < _MAX_DEPTH:
        # Of the type: an object of the program may have a `__getattr__`.
        names = next((names for names in _ATTRIBUTES if hasattr(type(awaited), names[0])), None)
        if names is None:
            break
        frame, next_awaited, is_running = (getattr(awaited, name) for name in names)
        if is_running:
            return []
        if frame is None:
            break
        stack.append((frame.f_code, frame.f_lasti))
        awaited = next_awaited
    stack.reverse()
    return stack


def _awaiters(tasks: list[Any]) -> dict[int, Any]:
    """The task that awaits each task directly, by `gather` or in a task group, by id of the awaited one."""
    awaiters: dict[int, Any] = {}
    for task in tasks:
        awaited = getattr(task, "_fut_waiter", None)
        for child in (awaited, *getattr(awaited, "_children", ())):
            awaiters.setdefault(id(child), task)
        for callback in getattr(task, "_callbacks", None) or ():
            group = getattr(callback[0], "__self__", None)
            parent = getattr(group, "_parent_task", None)
            if parent is not None:
                awaiters.setdefault(id(task), parent)
    return awaiters


def _awaiter(task: Any, awaiters: dict[int, Any]) -> Any:
    """A task that awaits this one; from 3.14 on asyncio records it."""
    awaiter = awaiters.get(id(task))
    if awaiter is not None:
        return awaiter
    future = task
    for _ in range(_MAX_DEPTH):
        future = next(iter(getattr(future, "_asyncio_awaited_by", None) or ()), None)
        if future is None or hasattr(future, "get_coro"):
            return future
    return None


def _context_id(task: Any) -> int:
    """The context id of the task's labels; 0 without any."""
    if hasattr(task, "get_context"):
        context = task.get_context()
    else:
        callbacks = getattr(getattr(task, "_fut_waiter", None), "_callbacks", None) or ()
        context = next((context for callback, context in callbacks if getattr(callback, "__self__", None) is task), None)
    return context.get(native.variable, 0) if context is not None else 0
