"""Writes the profiler's few lines to the program's own logger, ``logging.getLogger("spanprof")``.

Not here: what is said (native core). A logger that raises loses the line, nothing else.

``logging`` is never imported here. A process that forks while another thread imports a module leaves that module's lock held in
the child, which then waits for it for ever (CPython's importlib/_bootstrap.py, ``_ModuleLock``). Where the program has not
imported it, there are no handlers, and a line ends where ``logging.lastResort`` would write it.
"""

from __future__ import annotations

import os
import sys
import threading

from . import imports
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Callable

#: ``logging.WARNING``.
_WARNING = 30
#: Id of the process whose outcome is printed. ``spanprof run`` sets its own, so that forked children print none.
_prints_outcome: int | None = None
#: Native calls that hand over their lines themselves.
_calls = 0


def print_outcome() -> None:
    """Prints the line at the end of the run on standard error, whatever the program's logging does."""
    global _prints_outcome
    _prints_outcome = os.getpid()


def hand_over() -> None:
    """Logs what waits, on this thread."""
    while True:
        line = native.take_log_line()
        if line is None:
            return
        try:
            if _prints_outcome == os.getpid() and line[1].startswith(native.outcome_prefix):
                print(line[1], file=sys.__stderr__, flush=True)
                continue
            logging = imports.loaded("logging")
            if logging is not None:
                logging.getLogger("spanprof").log(line[0], "%s", line[1])
            elif line[0] >= _WARNING:
                sys.stderr.write(f"{line[1]}\n")
        except Exception:
            pass


def logged_here(call: Callable[[], bool]) -> bool:
    """The result of a native call; its lines are logged on this thread, before it returns.

    At the end of the program a courier could take a line and be frozen before it is logged.
    """
    global _calls
    _calls += 1
    try:
        return call()
    finally:
        hand_over()
        _calls -= 1
        # What came from other threads meanwhile.
        hand_over()


_courier: threading.Thread | None = None


def wait_for_courier() -> None:
    """At the end of the program: a line that is on its way arrives."""
    courier = _courier
    if courier is not None and courier is not threading.current_thread():
        courier.join(1)


def send_courier() -> None:
    """Lets a short-lived thread log what waits. Called on the main thread, in the middle of anything."""
    if _calls > 0:
        native.log_not_fetched()
        return
    # Interrupted while it starts or lists threads itself, the main thread may hold this lock (not reentrant before 3.9.6).
    lock = threading._active_limbo_lock  # type: ignore[attr-defined]
    if not lock.acquire(blocking=False):
        native.log_not_fetched()
        return
    lock.release()
    global _courier
    try:
        courier = threading.Thread(target=hand_over, name="spanprof-log", daemon=True)
        courier.start()
        _courier = courier
    except Exception:
        native.log_not_fetched()


native.set_asked(send_courier)
