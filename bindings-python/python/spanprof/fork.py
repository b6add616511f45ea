"""Restarts the profiler in forked children, and sends their last window before ``os._exit``, which most call. Not here:
processes that SIGTERM ends, such as the workers of ``with Pool`` (native core)."""

from __future__ import annotations

import functools
import importlib
import os
import sys

from . import host_log, tasks, threads
from .interruptions import is_interruption
from .native import native
from .replacements import pickle_by_reference, replace

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Callable

_installed = False
# Id of the process whose hook has run, so that two hooks for the same fork have one effect.
_pid = 0
# `lifecycle.stop`, passed to `install`, since `lifecycle` imports this module.
_stop: Callable[[], bool]


class _Anchor:
    """The object to which ``multiprocessing`` holds a weak reference."""


_anchor = _Anchor()


def install(stop: Callable[[], bool]) -> None:
    """Registers the child's hook once. ``stop`` is called when a child of ``multiprocessing`` ends."""
    global _installed, _pid, _stop
    if not _installed:
        _stop = stop
        _pid = os.getpid()
        os.register_at_fork(before=_before_hook, after_in_child=_hook)
        _deliver_before_exit()
        _install_in_uwsgi()
        _installed = True


def _deliver_before_exit() -> None:
    replacement = native.exit_function(os._exit)
    replace(os, "_exit", os._exit, replacement)
    pickle_by_reference(replacement, "os", "_exit")


def _install_in_uwsgi() -> None:
    # uWSGI forks its workers in C. Unless py-call-uwsgi-fork-hooks is set, it calls only its own hook.
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is None:
        return
    earlier = getattr(uwsgi, "post_fork_hook", None)
    if earlier is None or "uwsgidecorators" in sys.modules:
        try:
            # This module shares uWSGI's hook among its callers. If the program imported it later, it would replace the hook.
            importlib.import_module("uwsgidecorators").postfork(_hook)
            return
        except Exception as error:
            if is_interruption(error):
                raise

    def after_fork() -> None:
        try:
            if earlier is not None:
                earlier()
        finally:
            _hook()

    uwsgi.post_fork_hook = after_fork  # type: ignore[attr-defined]


def _execs_immediately() -> bool:
    # `subprocess` with `preexec_fn` runs fork hooks in a child that calls `exec` right afterwards.
    hook = sys._getframe().f_back
    caller = hook and hook.f_back
    # C code calls the hook without a Python caller.
    return caller is not None and caller.f_code.co_name == "_execute_child" and caller.f_globals.get("__name__") == "subprocess"


def _after_in_child() -> None:
    global _pid
    if _pid == os.getpid() or _execs_immediately():
        return
    _pid = os.getpid()
    host_log.after_fork_in_child()
    native.after_fork_in_child()
    threads.name_threads()
    tasks.follow_settings()
    stop_at_process_exit(_stop)


# Their callers drop exceptions.
_before_hook = functools.partial(native.call_hook, host_log.before_fork)
_hook = functools.partial(native.call_hook, _after_in_child)


def stop_at_process_exit(stop: Callable[[], bool]) -> None:
    """In a child, before ``multiprocessing`` runs it: arranges that ``stop`` is called after the program's own finalizers.

    multiprocessing first clears the registered finalizers, then calls the function registered here, then runs the child.
    """
    multiprocessing_util = sys.modules.get("multiprocessing.util")
    if multiprocessing_util is not None:
        try:
            multiprocessing_util.register_after_fork(_anchor, functools.partial(_register_finalizer, stop))
        except Exception as error:
            if is_interruption(error):
                raise


def _register_finalizer(stop: Callable[[], bool], _anchor: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, stop, exitpriority=-(10**6))
