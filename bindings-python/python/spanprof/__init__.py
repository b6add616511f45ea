"""Continuous profiler inside the service: every sample carries its trace and span.

>>> import spanprof
>>> spanprof.start(service_name="checkout")            # doctest: +SKIP
>>> with spanprof.tag_wrapper({"endpoint": "/cart"}):  # also: async with, and as a decorator
...     pass

Samples are linked to the active OpenTelemetry span. ``stop()`` and the end of the program send the last window.
"""

from __future__ import annotations

from .capture import Capture, capture
from .decorate import decorate as _decorate
from .errors import SpanprofError
from .labels import Labels, bind, tag_wrapper
from .lifecycle import flush, is_running, start, stats, stop, update
from .native import native as _native
from .pyroscope import (
    LineNo,
    ProfilerImplementation,
    add_thread_tag,
    build_summary,
    change_name,
    configure,
    configure_experimental_stack_profiler,
    remove_tags,
    remove_thread_tag,
    runtime_name,
    runtime_version,
    shutdown,
    tag,
    test_logger,
)

_native.set_decorate(_decorate)

__version__: str = _native.version

__all__ = [
    "Capture",
    "Labels",
    "LineNo",
    "ProfilerImplementation",
    "SpanprofError",
    "__version__",
    "add_thread_tag",
    "bind",
    "build_summary",
    "capture",
    "change_name",
    "configure",
    "configure_experimental_stack_profiler",
    "flush",
    "is_running",
    "remove_tags",
    "remove_thread_tag",
    "runtime_name",
    "runtime_version",
    "shutdown",
    "start",
    "stats",
    "stop",
    "tag",
    "tag_wrapper",
    "test_logger",
    "update",
]
