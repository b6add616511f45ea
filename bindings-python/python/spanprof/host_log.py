"""Writes the profiler's log lines to the program's logger, ``logging.getLogger("spanprof")``.

Not here: the messages (native core). A logger that raises loses the line, with no other effect.

``logging`` is never imported here. If a process forks while another thread imports a module, that module's lock stays held in
the child, which then deadlocks on it (CPython's importlib/_bootstrap.py, ``_ModuleLock``). Where the program has not imported
``logging``, there are no handlers, and a warning goes to standard error, as ``logging.lastResort`` would write it.

The line at the end of a run goes to standard error if the program's logging neither shows it nor has a level or a handler for
the logger.
"""

from __future__ import annotations

import functools
import os
import sys
import threading

from . import imports
from .interruptions import is_interruption
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable

#: ``logging.INFO`` and ``logging.WARNING``.
_INFO, _WARNING = 20, 30
#: Id of the process that prints its outcome: that of the call of ``start``, so that forked and spawned children print none.
_prints_outcome: int | None = None
#: Whether the outcome is printed whatever the program's logging does.
_is_run = False
#: The process whose fork hooks have run, that is: whose ``threading`` can start threads.
_process = os.getpid()
#: Number of running native calls that log their lines themselves.
_logging_calls = 0


def print_outcome() -> None:
    """Prints the line at the end of this process's runs on standard error, unless the program's logging decides."""
    global _prints_outcome
    _prints_outcome = os.getpid()


def print_outcome_of_run() -> None:
    """For ``spanprof run``: prints the line independently of the program's logging."""
    global _is_run
    _is_run = True


def _decides(logging: Any) -> bool:
    """Whether the program's logging shows information of the profiler, or has a level or a handler for it."""
    logger = logging.getLogger("spanprof")
    return bool(logger.level or logger.handlers) or (logger.isEnabledFor(_INFO) and logger.hasHandlers())


def log_queued_lines() -> None:
    """Logs the queued lines, on this thread."""
    while True:
        try:
            line = native.take_log_line()
            if line is None:
                return
            _log(*line)
        except Exception as error:
            if is_interruption(error):
                raise


def warn(text: str) -> None:
    """Logs a warning of this package, on this thread."""
    try:
        _log(_WARNING, text, True)
    except Exception as error:
        if is_interruption(error):
            raise


def _log(level: int, text: str, is_printed: bool) -> None:
    logging = imports.loaded("logging")
    is_outcome = _prints_outcome == os.getpid() and text.startswith(native.outcome_prefix)
    is_shown = is_printed and level < _WARNING and (logging is None or not _decides(logging))
    if is_outcome and (_is_run or is_shown):
        print(text, file=sys.__stderr__, flush=True)
    elif logging is not None:
        logging.getLogger("spanprof").log(level, "%s", text)
    elif level >= _WARNING:
        sys.stderr.write(f"{text}\n")


def call_and_log(call: Callable[[], bool]) -> bool:
    """Returns the result of a native call; logs its lines on this thread before returning.

    At the end of the program a log thread could be stopped between fetching and logging a line.
    """
    global _logging_calls
    _logging_calls += 1
    try:
        return call()
    finally:
        try:
            log_queued_lines()
        finally:
            _logging_calls -= 1
        # Lines that other threads queued meanwhile.
        log_queued_lines()


_log_thread: threading.Thread | None = None


def join_log_thread() -> None:
    """At the end of the program: waits until a fetched line is logged."""
    log_thread = _log_thread
    if log_thread is not None and log_thread is not threading.current_thread():
        try:
            log_thread.join(1)
        except RuntimeError:  # It could not start.
            pass


def after_fork_in_child() -> None:
    """Allows log threads again, after the hook of ``threading``."""
    global _process
    _process = os.getpid()


def start_log_thread() -> None:
    """Starts a short-lived thread that logs the queued lines. Runs as a pending call of the main thread."""
    # In a forked child it can interrupt the hook of `threading`, which would forget the new thread (CPython 3.9 to 3.13,
    # Lib/threading.py, `_after_fork`).
    if _logging_calls > 0 or _process != os.getpid():
        native.log_fetch_failed()
        return
    # The main thread may hold this lock, if it was interrupted while starting or listing threads (not reentrant before 3.9.6).
    lock = threading._active_limbo_lock  # type: ignore[attr-defined]
    if not native.is_acquirable(lock):
        native.log_fetch_failed()
        return
    global _log_thread
    try:
        log_thread = threading.Thread(target=log_queued_lines, name="spanprof-log", daemon=True)
        # Without memory, the new thread can end before it reports its start, for which `start` would wait forever.
        log_thread._started.wait = functools.partial(log_thread._started.wait, 1)  # type: ignore[attr-defined]
        log_thread.start()
        _log_thread = log_thread
    except Exception as error:
        native.log_fetch_failed()
        if is_interruption(error):
            raise


native.set_log_notifier(start_log_thread)
