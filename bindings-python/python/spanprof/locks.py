"""Replaces the locks of ``threading``, asyncio, gevent and eventlet while waits for locks are reported. Each replacement stays
valid after it is taken back: its objects then only pass calls through. Not here: the native lock types (native module).

The locks that the interpreter creates for itself stay plain: import locks, the locks in which ``Condition.wait`` and
``Thread.join`` wait. Waiting there is idle time, not contention.
"""

from __future__ import annotations

import _thread
import functools
import sys
import threading
from abc import ABCMeta
from types import ModuleType

from . import host_log
from .imports import when_imported
from .interruptions import is_interruption
from .native import native
from .replacements import TABLE, pickle_by_reference

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable, Coroutine

#: (owner, name, original, replacement) of each attribute that is replaced now or was before.
_attributes: list[tuple[Any, str, Any, Any]] = []
_is_measuring: bool | None = False
_is_prepared = False
_has_warned = False


def measure(is_on: bool) -> None:
    """Replaces the locks, or takes that back; does nothing if that has been done. Never raises."""
    global _is_measuring, _is_prepared
    if is_on == _is_measuring:
        return
    _is_measuring = is_on
    try:
        if is_on and not _is_prepared:
            _prepare()
            _is_prepared = True
        for owner, name, original, replacement in _attributes:
            _replace(owner, name, original, replacement)
        if is_on:
            _warn_of_other_locks()
    except BaseException as error:
        if is_interruption(error):
            _is_measuring = None  # The next call completes this one.
            raise
        host_log.warn(f"spanprof: waits for locks are not measured: {error!r}")


def _replace(owner: Any, name: str, original: Any, replacement: Any) -> None:
    # Another library may have replaced the attribute in between: its value stays.
    old, new = (original, replacement) if _is_measuring else (replacement, original)
    if vars(owner).get(name) is old:
        setattr(owner, name, new)


def _add(owner: Any, name: str, original: Any, replacement: Any) -> None:
    # Present if a signal handler interrupted an earlier call.
    if not any(entry[:2] == (owner, name) for entry in _attributes):
        _attributes.append((owner, name, original, replacement))
        TABLE.append(_attributes[-1])


def _warn_of_other_locks() -> None:
    global _has_warned
    module = type(threading.Lock()).__module__
    if not _has_warned and module not in ("_thread", "gevent.thread", "eventlet.lock"):
        _has_warned = True
        host_log.warn(f"spanprof: threading.Lock is that of {module}; waits for its locks are not measured")


class _LockMeta(ABCMeta):
    """Makes plain locks instances of the native types, and plain types their subclasses. An ``ABCMeta``, so that a subclass
    can be abstract as a subclass of the plain type can."""

    _plain: dict[type, type] = {}

    def __instancecheck__(cls, instance: object) -> bool:
        plain = _LockMeta._plain.get(cls)
        if plain is None:
            return super().__instancecheck__(instance)
        return type.__instancecheck__(cls, instance) or isinstance(instance, plain)

    def __subclasscheck__(cls, subclass: type) -> bool:
        plain = _LockMeta._plain.get(cls)
        if plain is None:
            return super().__subclasscheck__(subclass)
        return type.__subclasscheck__(cls, subclass) or issubclass(subclass, plain)


def _prepare() -> None:
    allocate, recursive = _thread.allocate_lock, _thread.RLock
    plain = type(allocate())
    if plain.__module__ == recursive.__module__ == "_thread":
        lock, allocate_measured, recursive_lock = native.lock_types(_LockMeta, plain, allocate, recursive)
        _LockMeta._plain.update({lock: plain, recursive_lock: recursive})
        if sys.version_info < (3, 13):
            _add(threading, "Lock", allocate, allocate_measured)
        else:
            _add(threading, "Lock", plain, lock)
        # Up to 3.14, threading.RLock is a function that calls this.
        _add(threading, "_CRLock", recursive, recursive_lock)
        _add(threading, "RLock", recursive, recursive_lock)
        for replacement, name in ((allocate_measured, "Lock"), (lock, "Lock"), (recursive_lock, "_CRLock")):
            pickle_by_reference(replacement, "threading", name)
    _prepare_semaphores()
    when_imported("asyncio.locks", _prepare_asyncio)
    when_imported("gevent.thread", lambda module: _prepare_green(module.LockType))
    when_imported("eventlet.semaphore", lambda module: _prepare_green(module.Semaphore))


def _prepare_semaphores() -> None:
    # A semaphore waits in its condition, so that acquiring a free one costs what it did.
    class SemaphoreCondition(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            timer = None if timeout is not None and timeout <= 0 else native.begin_wait()
            if timer is None:
                return super().wait(timeout)
            try:
                return super().wait(timeout)
            finally:
                timer.end(self._lock)  # type: ignore[attr-defined]

        def __reduce_ex__(self, protocol: Any) -> tuple:
            import copyreg

            return copyreg._reconstructor, (condition, object, None), self.__dict__  # type: ignore[attr-defined]

    condition, original = threading.Condition, threading.Semaphore.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if type(self._cond) is condition:
            self._cond.__class__ = SemaphoreCondition

    _add(threading.Semaphore, "__init__", original, __init__)


def _prepare_asyncio(module: ModuleType) -> None:
    for owner, is_free in (
        (module.Lock, lambda lock: not lock._locked and not lock._waiters),
        (module.Semaphore, lambda semaphore: semaphore._value > 0 and not semaphore._waiters),
    ):
        original = owner.acquire
        _add(owner, "acquire", original, _measured(original, is_free))
        _replace(*_attributes[-1])


def _measured(original: Callable, is_free: Callable) -> Callable:
    @functools.wraps(original)
    async def wait(self: Any) -> bool:
        timer = None if is_free(self) else native.begin_wait()
        try:
            return await original(self)
        finally:
            if timer is not None:
                timer.end()

    @functools.wraps(original)
    def acquire(self: Any) -> Coroutine[Any, Any, bool]:
        return original(self) if is_free(self) else wait(self)

    # From 3.12 on, `inspect` recognizes a coroutine function by a mark too.
    return sys.modules["inspect"].markcoroutinefunction(acquire) if sys.version_info >= (3, 12) else wait


def _prepare_green(owner: Any) -> None:
    # The class by which gevent or eventlet replaces threading.Lock; their RLock is the one in Python, which uses this.
    original, idle = owner.acquire, threading.Condition.wait.__code__

    @functools.wraps(original)
    def acquire(self: Any, blocking: bool = True, *values: Any, **keywords: Any) -> bool:
        is_idle = not blocking or not self.locked() or sys._getframe(1).f_code is idle
        timer = None if is_idle else native.begin_wait()
        if timer is None:
            return original(self, blocking, *values, **keywords)
        try:
            return original(self, blocking, *values, **keywords)
        finally:
            timer.end()

    _add(owner, "acquire", original, acquire)
    _replace(*_attributes[-1])
