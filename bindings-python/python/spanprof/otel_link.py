"""Links samples to the active OpenTelemetry span: replaces ``attach`` and ``detach`` of the runtime context once.

The context variable of the profiler is set in the same ``contextvars.Context`` in the same call, so it follows tasks as the
span does. Works with the API alone or with an SDK, loaded before or after ``start``. The replacements are native
(``src/objects/otel_calls.rs``), because every span makes two calls. Not here: the span processor (``otel``).
"""

from __future__ import annotations

import sys
from types import ModuleType

from .imports import when_imported
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

_installed = False
_names_root_spans = False


def install() -> None:
    """Replaces the functions of OpenTelemetry's context API, now or when its tracing API is imported."""
    global _installed
    if not _installed:
        # Without this module there are no spans.
        when_imported("opentelemetry.trace", _link)
        _installed = True


def name_root_spans() -> None:
    """Enables the label ``span_name`` with the name of the local root span."""
    global _names_root_spans
    _names_root_spans = True
    native.name_root_spans()


def _link(trace: ModuleType) -> None:
    context = sys.modules["opentelemetry.context"]
    # Before opentelemetry-api 1.25 the first call makes it.
    context.get_current()
    runtime_context = context._RUNTIME_CONTEXT
    originals = (runtime_context.attach, runtime_context.detach)
    attach, detach = native.link_opentelemetry(
        originals,
        _variable_of(runtime_context),
        sys.modules["opentelemetry.trace.propagation"]._SPAN_KEY,
        trace.SpanContext,
        _describe,
    )
    runtime_context.attach = attach
    runtime_context.detach = detach
    # Links a span that is already current.
    attach(runtime_context.get_current())


def _variable_of(runtime_context: Any) -> Any:
    # Only if attach and detach are the standard ones, which only set and reset this variable.
    standard = getattr(sys.modules.get("opentelemetry.context.contextvars_context"), "ContextVarsRuntimeContext", None)
    variable = getattr(runtime_context, "_current_context", None)
    if type(runtime_context) is not standard or type(variable).__name__ != "ContextVar":
        return None
    methods = (standard.attach, standard.detach)
    is_original = all(getattr(method, "__module__", None) == standard.__module__ for method in methods)
    return variable if is_original else None


def _describe(context: Any) -> tuple:
    """Trace id, span id, whether it is a local root, and labels: for spans of other classes and for named root spans."""
    span = sys.modules["opentelemetry.trace"].get_current_span(context)
    span_context = span.get_span_context()
    parent = getattr(span, "parent", _UNKNOWN)
    is_local_root = parent is None or (parent is not _UNKNOWN and parent.is_remote)
    labels = {"span_name": span.name} if is_local_root and _names_root_spans else None
    return span_context.trace_id, span_context.span_id, bool(is_local_root), labels


_UNKNOWN = object()
