"""Wraps ``os.exec*`` for ``clock=sigtrap``: a trap that is pending during ``exec`` kills the new program, so the calling
thread's CPU clock is disarmed during the call. For other clocks nothing is wrapped.
"""

from __future__ import annotations

import functools
import os

from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable

_installed = False


def install() -> None:
    """Wraps the two functions that implement ``os.exec*`` and ``os.spawn*``, once, if the clock requires it."""
    global _installed
    if not _installed and native.setting("clock") == "sigtrap":
        os.execv = _without_clock(os.execv)
        os.execve = _without_clock(os.execve)
        _installed = True


def _without_clock(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def replace_program(*arguments: Any, **keywords: Any) -> Any:
        native.suspend_current_thread()
        try:
            return function(*arguments, **keywords)
        finally:  # Reached only when `exec` failed.
            native.resume_current_thread()

    return replace_program
