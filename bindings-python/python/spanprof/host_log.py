"""Says the profiler's few lines on the program's own logger, ``logging.getLogger("spanprof")``.

Not here: what is said (native core). A logger that raises loses the line, nothing else.
"""

from __future__ import annotations

import threading

from .native import native


def hand_over() -> None:
    """Says what waits, on this thread."""
    while True:
        line = native.take_log_line()
        if line is None:
            return
        try:
            import logging

            logging.getLogger("spanprof").log(line[0], "%s", line[1])
        except Exception:
            pass


def send_courier() -> None:
    """Lets a short-lived thread say what waits. Called on the main thread, in the middle of anything."""
    # Interrupted while it starts or lists threads itself, the main thread may hold this lock (not reentrant before 3.9.6).
    lock = threading._active_limbo_lock  # type: ignore[attr-defined]
    if not lock.acquire(blocking=False):
        native.log_not_fetched()
        return
    lock.release()
    try:
        threading.Thread(target=hand_over, name="spanprof-log", daemon=True).start()
    except Exception:
        native.log_not_fetched()


native.set_asked(send_courier)
