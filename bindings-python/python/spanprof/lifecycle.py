"""Start, stop, flush, update, stats and is_running, and the installation of the process's hooks. Not here: the settings (native core)."""

from __future__ import annotations

import atexit

from . import arrays, fork, frameworks, greenlets, host_log, locks, otel_link, spawn, tasks, threads, tracer_provider
from .errors import SpanprofError
from .interruptions import is_interruption
from .native import native
from .pyroscope_settings import translated

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

    from typing_extensions import Unpack

    from .options import Options, PyroscopeOptions

_at_exit = False


def start(**config: Unpack[PyroscopeOptions]) -> bool:
    """Starts profiling this process; True when samples are being taken afterwards.

    Settings are keyword arguments. Omitted ones come from ``SPANPROF_*``, ``OTEL_*``, ``PYROSCOPE_*``, the file named by
    ``config_file`` and the defaults, in this order. Pyroscope's keyword arguments are accepted. A second call while running
    changes nothing. Raises :class:`SpanprofError` for an impossible argument, and for nothing else: where this process cannot be
    profiled, it returns False and one line of the log says why. An exception of a signal handler passes unchanged. After an
    exception the profiler does not run, unless it ran before.
    """
    host_log.print_outcome()
    return _start(dict(config))


def start_or_warn(config: dict[str, Any]) -> bool:
    """As ``start``, for a start without a call in the program: an error becomes a warning of the logger."""
    try:
        return _start(config)
    except SpanprofError as error:
        host_log.warn(f"spanprof: not profiling: {error}")
        return False


def _start(config: dict[str, Any]) -> bool:
    was_running = native.is_running()
    try:
        return _start_and_install(translated(config))
    except BaseException as error:
        if not was_running:
            native.stop(0)
            locks.measure(False)
        if not isinstance(error, Exception) or isinstance(error, SpanprofError) or is_interruption(error):
            raise
        # Of the interpreter, such as a lack of memory or a module that cannot be read.
        host_log.warn(f"spanprof: this process is not profiled: {type(error).__name__}: {error}")
        return False


def _start_and_install(config: dict[str, Any]) -> bool:
    global _at_exit
    try:
        running = native.start(config)
    finally:
        host_log.log_queued_lines()
    if running is None:
        return False
    # Also while disabled: the profiler may be enabled later.
    if running or native.setting("enabled") is not None:
        threads.install()
        threads.name_threads()
        greenlets.install()
        arrays.install()
        fork.install(stop)
        spawn.install(config)
        otel_link.install()
        tracer_provider.install()
        frameworks.install()
        tasks.follow_settings()
        locks.measure(native.setting("lock") == "true")
        if not _at_exit:
            tasks.follow_imports()
            atexit.register(_end)
            atexit.register(stop)
            _at_exit = True
    return running


def _end() -> None:
    # Runs after `stop`: no pending call may be added during finalization.
    host_log.log_queued_lines()
    native.close_log()


def stop() -> bool:
    """Stops profiling and sends the last window within ``stop_timeout`` seconds; True when every window since the start was
    delivered."""
    tasks.store_now()
    delivered = native.stop()
    host_log.log_queued_lines()
    tasks.follow_settings()
    locks.measure(False)
    return delivered


def flush(timeout: float | None = None) -> bool:
    """Sends the samples collected so far; True when everything was delivered within ``timeout`` seconds."""
    delivered = native.flush(timeout)
    host_log.log_queued_lines()
    return delivered


def update(**config: Unpack[Options]) -> bool:
    """Changes settings while running; False when the profiler does not run.

    Raises :class:`SpanprofError` for a setting that cannot change while running, or for an invalid value.
    """
    try:
        updated = native.update(dict(config))
    finally:
        host_log.log_queued_lines()
    if updated:
        spawn.remember(dict(config))
        follow_settings()
    return updated


def follow_settings() -> None:
    """Installs or removes the hooks of the interpreter after a change of the settings."""
    native.follow_settings()
    threads.install()
    tracer_provider.install()
    frameworks.install()
    tasks.follow_settings()
    locks.measure(native.setting("lock") == "true")


native.set_settings_notifier(follow_settings)


def stats() -> dict[str, int | str]:
    """The profiler's statistics: samples, losses by reason, deliveries, settings with their sources."""
    return native.stats()


def is_running() -> bool:
    """Whether this process is being profiled now: true between a ``start`` that returned true and ``stop``."""
    return native.is_running()
