"""Hooks for threads and executors: registers new threads with the engine, names threads, binds submitted calls to their
submitter's labels.

Functions are wrapped once, permanently; without a running profiler a wrapper costs one call. Not here: asyncio, which
propagates context variables itself.
"""

from __future__ import annotations

import _thread
import functools
import threading
from types import ModuleType

from .imports import when_imported
from .native import native
from .replacements import replace

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable

_installed = False
_inheriting = False


def install() -> None:
    """Wraps the start of threads and ``ThreadPoolExecutor.submit``, now or when the module is imported."""
    global _installed
    if not _installed:
        _register_threads()
        _follow_names()
        when_imported("concurrent.futures.thread", _bind_submitted_calls)
        _installed = True
    if native.inherits_threads():
        _inherit_contexts()


def _register_threads() -> None:
    # Wraps the last step on the new thread before it signals its start: no frame of the wrapper stays on its stack.
    original = getattr(threading.Thread, "_set_native_id", None)
    if original is None:
        return

    @functools.wraps(original)
    def _set_native_id(self: threading.Thread) -> None:
        original(self)
        if threading.current_thread is not None and self.ident == threading.get_ident():
            native.register_current_thread()
            _name(self)
            inherited = self.__dict__.pop("_spanprof_context", 0)
            # From 3.14 on a thread runs in its own `Context`.
            context = getattr(self, "_context", None)
            if context is None:
                _prepare_context(inherited)
            else:
                context.run(_prepare_context, inherited)

    replace(threading.Thread, "_set_native_id", original, _set_native_id)


def name_threads() -> None:
    """Reports the names of the threads that exist."""
    for thread in list(getattr(threading, "_active", {}).values()):
        _name(thread)


def _name(thread: threading.Thread) -> None:
    # The kernel's name of a thread that Python did not start says more than `Dummy-1`. A greenlet has no thread of its own.
    if isinstance(thread, threading._DummyThread) or type(_thread.start_new_thread) is not type(len):
        return
    is_current = thread.ident == threading.get_ident()
    # The main thread of a forked child may still have the id of its parent.
    thread_id = threading.get_native_id() if is_current else thread.native_id
    name = thread.__dict__.get("_name")
    if thread_id is not None and type(name) is str:
        native.name_thread(thread_id, name)


def _follow_names() -> None:
    original = threading.Thread.__dict__.get("name")
    if type(original) is not property or original.fset is None:
        return
    set_name = original.fset

    @functools.wraps(set_name)
    def name(self: threading.Thread, name: str) -> None:
        set_name(self, name)
        if self.is_alive():
            _name(self)

    replace(threading.Thread, "name", original, original.setter(name))


def _prepare_context(inherited: Any) -> None:
    if inherited:
        native.set_current(inherited)
    native.hook_arrays()


def _inherit_contexts() -> None:
    global _inheriting
    if _inheriting:
        return
    original = threading.Thread.start

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        if native.inherits_threads():
            current = native.current()
            if current:
                self.__dict__["_spanprof_context"] = current
        original(self)

    replace(threading.Thread, "start", original, start)
    _inheriting = True


def _bind_submitted_calls(module: ModuleType) -> None:
    executor = module.ThreadPoolExecutor
    original: Callable = executor.submit

    @functools.wraps(original)
    def submit(self: Any, fn: Callable, /, *args: Any, **kwargs: Any) -> Any:
        return original(self, native.bind_context(fn), *args, **kwargs)

    replace(executor, "submit", original, submit)
