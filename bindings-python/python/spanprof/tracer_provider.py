"""Registers the span processor (``otel``) with the tracer provider of the program's OpenTelemetry SDK, now or when it is set.

``opentelemetry.trace`` stores the provider once, in ``_set_tracer_provider`` (opentelemetry-api 1.4 to 1.45, trace/__init__.py). Not
here: links of samples to spans (``otel_link``). Nothing of OpenTelemetry is imported that the program has not imported.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType

from . import imports
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

_installed = False


def install() -> None:
    """Follows the tracer provider, unless ``requests=false``."""
    global _installed
    if not _installed and native.follows_requests():
        imports.when_imported("opentelemetry.trace", _follow)
        _installed = True


def _follow(trace: ModuleType) -> None:
    if trace._TRACER_PROVIDER is not None:
        _register(trace._TRACER_PROVIDER)
        return
    original = trace._set_tracer_provider

    @functools.wraps(original)
    def _set_tracer_provider(*arguments: Any, **keywords: Any) -> None:
        original(*arguments, **keywords)
        imports.call(_register, trace._TRACER_PROVIDER, "the tracer provider")

    trace._set_tracer_provider = _set_tracer_provider  # type: ignore[attr-defined]


def _register(provider: Any) -> None:
    kind = type(provider)
    if kind.__module__.partition(".")[0] == "opentelemetry" and not hasattr(provider, "add_span_processor"):
        # Of the API: it makes no spans.
        return
    if not hasattr(provider, "add_span_processor") or "opentelemetry.sdk.trace" not in sys.modules:
        imports.warn(
            f"spanprof: requests have no duration: the tracer provider {kind.__module__}.{kind.__qualname__} accepts no span "
            "processor. Add spanprof.otel.SpanProcessor() to the SDK's provider, or a middleware of spanprof"
        )
        return
    from .otel import RegisteredSpanProcessor

    RegisteredSpanProcessor.register(provider)
