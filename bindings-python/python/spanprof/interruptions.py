"""Separates exceptions of the program's signal handlers from those of the profiler's own calls.

A signal handler runs between any two instructions of the main thread, also inside the profiler. Its exception belongs to the
program: code that handles every ``Exception`` raises it again, and native code keeps it (``src/ffi/interruption.rs``).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from types import FrameType

_VARIABLE_ARGUMENTS = 0x04  # inspect.CO_VARARGS


def is_interruption(error: BaseException) -> bool:
    """Whether a signal handler raised ``error``; that of ``KeyboardInterrupt`` usually has no frame."""
    if isinstance(error, KeyboardInterrupt):
        return True
    entry = error.__traceback__
    while entry is not None:
        if _is_signal_handler(entry.tb_frame):
            return True
        entry = entry.tb_next
    return False


def _is_signal_handler(frame: FrameType) -> bool:
    # Not by the handlers that are set: one may replace itself. An argument of each is the frame that it interrupted.
    interrupted, code = frame.f_back, frame.f_code
    if interrupted is None:
        return False
    has_more = code.co_flags & _VARIABLE_ARGUMENTS != 0
    count = code.co_argcount + code.co_kwonlyargcount
    values = [frame.f_locals.get(name) for name in code.co_varnames[: count + has_more]]
    if has_more and type(values[-1]) is tuple:
        values += values[-1]
    return any(value is interrupted for value in values)
