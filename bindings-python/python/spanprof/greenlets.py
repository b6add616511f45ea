"""greenlet (and gevent on top of it) switches a thread's frames and context under the interpreter, in two steps: the engine is
told where that code lies, so that no sample taken between the steps bears another greenlet's labels."""

from __future__ import annotations

from types import ModuleType

from .imports import when_imported
from .native import native

_installed = False


def install() -> None:
    """Tells the engine of greenlet, now or when it is imported."""
    global _installed
    if not _installed:
        _installed = True
        when_imported("greenlet._greenlet", _watch)


def _watch(module: ModuleType) -> None:
    native.watch_switching(module.getcurrent)
