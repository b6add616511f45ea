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

_native.set_decorate(_decorate)

__version__: str = _native.version

__all__ = [
    "Capture",
    "Labels",
    "SpanprofError",
    "__version__",
    "bind",
    "capture",
    "flush",
    "is_running",
    "start",
    "stats",
    "stop",
    "tag_wrapper",
    "update",
]
