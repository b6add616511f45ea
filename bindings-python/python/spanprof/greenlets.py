"""Registers greenlet's library with the engine. greenlet (and gevent, which uses it) replaces a thread's frames and context in
separate steps; a sample taken between them would have another greenlet's labels."""

from __future__ import annotations

from types import ModuleType

from .imports import when_imported
from .native import native

_installed = False


def install() -> None:
    """Registers greenlet, now or when it is imported."""
    global _installed
    if not _installed:
        when_imported("greenlet._greenlet", _register)
        _installed = True


def _register(module: ModuleType) -> None:
    native.watch_greenlet_switches(module.getcurrent)
