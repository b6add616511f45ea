"""Starts the profiler in a spawned child. ``spawn`` in the parent passes the code that imports this module."""

from __future__ import annotations

from . import fork, lifecycle

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any


def start_in_child(configuration: dict[str, Any]) -> None:
    """Starts the profiler before the program's own code."""
    lifecycle.start_or_warn(configuration)
    fork.stop_at_process_exit(lifecycle.stop)
