"""Writes the profiler's log lines to the program's logger, ``logging.getLogger("spanprof")``.

Not here: the messages (native core). A logger that raises loses the line, with no other effect.

The program's handlers run on threads of the profiler only, and a call of the profiler waits for them for a limited time: a handler
may need a lock that the calling thread holds, for example where a signal handler calls ``stop``. Warnings that are not logged in
time go to standard error. In a child forked while further threads ran they all do. The handlers may need a lock that one of these
threads held, for ever: CPython renews the locks of handlers, not those inside them (Lib/logging/__init__.py, 3.9 to 3.15,
``_after_at_fork_child_reinit_locks``), and a blocked handler would block ``logging.shutdown`` at exit.

``logging`` is never imported here. If a process forks while another thread imports a module, that module's lock stays held in
the child, which then deadlocks on it (CPython's importlib/_bootstrap.py, ``_ModuleLock``). Where the program has not imported
``logging``, there are no handlers, and a warning goes to standard error, as ``logging.lastResort`` would write it.

The line at the end of a run goes to standard error if the program's logging neither shows it nor has a level or a handler for
the logger. Standard error is that of the interpreter's start, written without ``sys.stderr``, whose lock may be held too.
"""

from __future__ import annotations

import _thread
import functools
import os
import sys
import threading
import time

from . import imports
from .interruptions import is_interruption
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

    #: Level, text, and whether the line goes to standard error without a logger.
    Lines = list[tuple[int, str, bool]]

#: ``logging.INFO`` and ``logging.WARNING``.
_INFO, _WARNING = 20, 30
#: Seconds for which a call waits for the program's handlers, and a fork.
_SECONDS, _SECONDS_OF_FORK = 2.0, 0.2
#: Id of the process that prints its outcome: that of the call of ``start``, so that forked and spawned children print none.
_prints_outcome: int | None = None
#: Whether the outcome is printed whatever the program's logging does.
_is_run = False
#: The process whose fork hooks have run, that is: whose ``threading`` knows its threads.
_process = os.getpid()
#: Whether the program's handlers may be called: false in a child forked while further threads ran.
_may_log = True
_may_log_in_child = True
#: Ids of the log threads.
_threads: set[int] = set()
#: Of each log thread that calls wait for, the lock that it releases at its end.
_running: set[Any] = set()


def _find_standard_error() -> None:
    # `sys.__stderr__` is None in a process that began without standard error, and may be closed.
    try:
        has_one = sys.__stderr__.fileno() == 2  # type: ignore[union-attr]
    except Exception as error:
        if is_interruption(error):
            raise
        has_one = False
    if not has_one:
        native.forget_standard_error()


_find_standard_error()


def print_outcome() -> None:
    """Prints the line at the end of this process's runs on standard error, unless the program's logging decides."""
    global _prints_outcome
    _prints_outcome = os.getpid()


def print_outcome_of_run() -> None:
    """For ``spanprof run``: prints the line independently of the program's logging."""
    global _is_run
    _is_run = True


def before_fork() -> None:
    """Waits until the log threads hold no lock of the program, for a limited time; finds out whether the child may log."""
    global _may_log_in_child
    _wait(_SECONDS_OF_FORK)
    leaves = [frame.f_globals.get("__name__", "") for frame in sys._current_frames().values()]
    # This thread's leaf is here; the thread of `tasks` logs nothing.
    _may_log_in_child = _may_log and all(name in (__name__, "spanprof.tasks") for name in leaves)


def after_fork_in_child() -> None:
    """Allows log threads again, after the hook of ``threading``."""
    global _process, _may_log
    _process, _may_log = os.getpid(), _may_log_in_child
    _threads.clear()
    _running.clear()


def start_log_thread() -> None:
    """Logs the queued lines on a thread. Runs as a pending call of the main thread."""
    # In a forked child it can interrupt the hook of `threading`, which would forget the new thread (CPython 3.9 to 3.13,
    # Lib/threading.py, `_after_fork`).
    if _process == os.getpid():
        _start(_queued_lines())
    else:
        native.log_fetch_failed()


def log_queued_lines() -> None:
    """Logs the queued lines, and waits for this and for the other log threads for a limited time."""
    _log_in_time(_queued_lines())


def warn(text: str) -> None:
    """Logs a warning of this package."""
    _log_in_time([(_WARNING, text, True)])


def _queued_lines() -> Lines:
    return list(iter(native.take_log_line, None))


def _log_in_time(lines: Lines) -> None:
    try:
        _start(lines)
        _running.difference_update(_wait(_SECONDS))
        _print_all(lines)
    except Exception as error:  # Such as a lack of memory.
        if is_interruption(error):
            raise


def _wait(seconds: float) -> list[Any]:
    """Waits for the log threads, and returns the locks of those that still run."""
    if _thread.get_ident() in _threads:
        return []  # A handler of the program calls the profiler.
    until = time.monotonic() + seconds
    return [ended for ended in list(_running) if not ended.acquire(True, max(0.0, until - time.monotonic()))]


def _start(lines: Lines) -> None:
    if not lines:
        return
    logging = imports.loaded("logging") if _may_log else None
    # gevent and eventlet replace threads by greenlets. These share their locks' thread, and exist in a forked child too.
    if logging is None or type(_thread.start_new_thread) is not type(len):
        _log(logging, lines)
        return
    ended = _thread.allocate_lock()
    ended.acquire()
    _running.add(ended)
    if not native.start_thread(functools.partial(_run, logging, lines, ended)):
        _running.discard(ended)
        _print_all(lines)


def _run(logging: Any, lines: Lines, ended: Any) -> None:
    ident = _thread.get_ident()
    _threads.add(ident)
    try:
        threading.current_thread().name = "spanprof-log"
        _log(logging, lines)
    finally:
        # Up to 3.12, `threading` keeps the objects of threads that it has not started.
        threading._active.pop(ident, None)  # type: ignore[attr-defined]
        _threads.discard(ident)
        _running.discard(ended)
        ended.release()


def _log(logging: Any, lines: Lines) -> None:
    while lines:
        try:
            _log_line(logging, *lines[0])
        except Exception as error:
            if is_interruption(error):
                raise
        del lines[:1]  # Empty if a call has printed them.


def _log_line(logging: Any, level: int, text: str, is_printed: bool) -> None:
    if logging is None or (_is_outcome(text) and (_is_run or (is_printed and not _decides(logging)))):
        _print(level, text, is_printed)
        return
    logger = logging.getLogger("spanprof")
    # Without a handler, `logging.lastResort` writes to standard error.
    if logger.hasHandlers() or native.has_standard_error():
        logger.log(level, "%s", text)


def _is_outcome(text: str) -> bool:
    return _prints_outcome == os.getpid() and text.startswith(native.outcome_prefix)


def _print_all(lines: Lines) -> None:
    while lines:
        _print(*lines.pop(0))


def _print(level: int, text: str, is_printed: bool) -> None:
    if level >= _WARNING or (_is_outcome(text) and (_is_run or is_printed)):
        native.write_to_standard_error(text)


def _decides(logging: Any) -> bool:
    """Whether the program's logging shows information of the profiler, or has a level or a handler for it."""
    logger = logging.getLogger("spanprof")
    return bool(logger.level or logger.handlers) or (logger.isEnabledFor(_INFO) and logger.hasHandlers())


native.set_log_notifier(start_log_thread)
imports.warn = warn
