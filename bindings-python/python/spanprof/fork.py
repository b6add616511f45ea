"""Forked children profile themselves, and send their last window although ``multiprocessing`` ends them by ``os._exit``."""

from __future__ import annotations

import os
import sys

from .native import native

_installed = False


class _Anchor:
    """Something for ``multiprocessing`` to hold a weak reference to."""


_anchor = _Anchor()


def install() -> None:
    """Registers the child's hook once."""
    global _installed
    if not _installed:
        _installed = True
        os.register_at_fork(after_in_child=_after_in_child)


def _after_in_child() -> None:
    native.after_fork_in_child()
    stop_at_process_exit()


def stop_at_process_exit() -> None:
    """In a child, before ``multiprocessing`` runs it: the profiler is stopped after the program's own finalizers.

    multiprocessing forgets the finalizers that are registered now, then calls what is registered here, then runs the child.
    """
    multiprocessing_util = sys.modules.get("multiprocessing.util")
    if multiprocessing_util is not None:
        try:
            multiprocessing_util.register_after_fork(_anchor, _register_finalizer)
        except Exception:
            pass


def _register_finalizer(_anchor: object) -> None:
    from .lifecycle import stop

    sys.modules["multiprocessing.util"].Finalize(None, stop, exitpriority=-(10**6))
