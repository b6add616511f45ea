"""Stores the stacks of suspended asyncio tasks for the profile of threads. Not here: the stacks of threads (native core).

A thread of this module reads the tasks once per upload interval, while the profile of threads is on. It is an ordinary Python
thread, which yields to others like any thread of the program. Tasks are read only where the program has imported asyncio.

A stack has the frames from the innermost await to the task's coroutine, then those of a task that awaits it, and so on.

| version | change | handled in |
|---|---|---|
| up to 3.11 | ``asyncio.tasks._all_tasks`` holds every task | ``_all_tasks`` |
| 3.12, 3.13 | ``_scheduled_tasks`` and ``_eager_tasks`` | ``_all_tasks`` |
| 3.12 | ``Task.get_context`` | ``_context_id`` |
| 3.14 | lists in C, by event loop; ``_asyncio_awaited_by`` | ``_running_loops``, ``_awaiter`` |
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock, start_new_thread

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
    """Starts the thread if the profile of threads is on; else wakes it, and waits for its end."""
    global _running_in, _wakeup, _ended
    is_on = native.suspended_tasks_interval() is not None
    if _running_in == os.getpid():
        if not is_on and _wakeup.locked():
            _wakeup.release()
            if _ended.acquire(True, _END_SECONDS):
                _ended.release()
        return
    if not _has_threads or not is_on:
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


def store_now() -> None:
    """Stores the tasks of this moment, before the last window."""
    if _running_in == os.getpid():
        try:
            native.store_suspended_tasks(list(_stacks()))
        except Exception as error:
            if is_interruption(error):
                raise
            native.store_suspended_tasks([])


def _run() -> None:
    global _running_in
    ended = _ended
    native.begin_storing_tasks()
    while True:
        seconds = native.suspended_tasks_interval()
        if seconds is None:
            break
        store_now()
        _wakeup.acquire(True, min(seconds, 3600.0))
    _running_in = None
    # The setting may have been turned on since.
    follow_settings()
    ended.release()


def _stacks() -> Iterator[tuple[int, Stack]]:
    """Context id and stack, leaf first, of each suspended task."""
    asyncio_tasks = sys.modules.get("asyncio.tasks")
    if asyncio_tasks is None:
        return
    tasks = [task for task in _all_tasks(asyncio_tasks) if not task.done()][:_MAX_TASKS]
    awaiters = _awaiters(tasks)
    for task in tasks:
        stack = _suspended(task)
        if not stack:
            continue
        seen = {id(task)}
        awaiter = _awaiter(task, awaiters)
        while awaiter is not None and id(awaiter) not in seen and len(seen) < _MAX_DEPTH:
            seen.add(id(awaiter))
            stack += _suspended(awaiter)
            awaiter = _awaiter(awaiter, awaiters)
        yield _context_id(task), stack


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
    """The context id of the task's labels; 0 before 3.12, where a task does not show its context."""
    context = task.get_context() if hasattr(task, "get_context") else None
    return context.get(native.variable, 0) if context is not None else 0
