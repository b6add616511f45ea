"""Continuous profiler inside the service: every sample carries its trace and span.

>>> import spanprof
>>> spanprof.start(service_name="checkout")            # doctest: +SKIP
>>> with spanprof.tag_wrapper({"endpoint": "/cart"}):  # also: async with, and as a decorator
...     pass

Samples are linked to the active OpenTelemetry span. ``stop()`` and the end of the program send the last window.
"""

from __future__ import annotations

from .decorate import decorate as _decorate
from .errors import SpanprofError
from .lifecycle import flush, start, stats, stop, update
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

# ``tag_wrapper`` and the ``Scope`` that it returns are C types of the native module, implemented in Rust:
# ``src/ffi/scope_calls.rs`` (entry points), ``src/ffi/scope.rs`` (open scopes), ``src/context.rs`` (context ids).
# ``_spanprof.pyi`` has the signatures, ``decorate.py`` the decorator, ``noop.py`` the version without the native module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._spanprof import Scope, tag_wrapper
else:
    tag_wrapper = _native.tag_wrapper

__all__ = [
    "LineNo",
    "ProfilerImplementation",
    "SpanprofError",
    "__version__",
    "add_thread_tag",
    "build_summary",
    "change_name",
    "configure",
    "configure_experimental_stack_profiler",
    "flush",
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
