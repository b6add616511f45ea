"""The active OpenTelemetry span links itself to the samples: the context API's attach and detach are wrapped once.

Our variable is set in the same ``contextvars.Context`` in the same call, so it follows tasks exactly as the span does. Works
with the API alone or with an SDK, loaded before or after ``start``. Not here: the span processor (``otel``).
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType

from .imports import when_imported
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

_installed = False
#: Whether the name of a local root span becomes the label ``span_name``; set by the Pyroscope span processor.
name_root_spans = False


class LinkedToken:
    """OpenTelemetry's token and ours."""

    __slots__ = ("token", "link")

    def __init__(self, token: Any, link: Any) -> None:
        self.token = token
        self.link = link


def install() -> None:
    """Wraps OpenTelemetry's context API, now or when it is imported."""
    global _installed
    if not _installed:
        _installed = True
        when_imported("opentelemetry.context", _wrap)


def _wrap(module: ModuleType) -> None:
    runtime_context = module._RUNTIME_CONTEXT
    context_type = type(runtime_context)
    original_attach = context_type.attach
    original_detach = context_type.detach

    @functools.wraps(original_attach)
    def attach(self: Any, context: Any) -> Any:
        token = original_attach(self, context)
        link = _attach_link(context)
        return token if link is None else LinkedToken(token, link)

    @functools.wraps(original_detach)
    def detach(self: Any, token: Any) -> None:
        if type(token) is LinkedToken:
            original_detach(self, token.token)
            native.detach_link(token.link)
        else:
            original_detach(self, token)

    context_type.attach = attach
    context_type.detach = detach
    _attach_link(runtime_context.get_current())


def _attach_link(context: Any) -> Any:
    try:
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        span = trace.get_current_span(context)
        span_context = span.get_span_context()
        span_id = span_context.span_id
        parent = getattr(span, "parent", _UNKNOWN)
        is_local_root = parent is None or (parent is not _UNKNOWN and parent.is_remote)
        labels = {"span_name": span.name} if is_local_root and name_root_spans else None
        return native.attach_link(span_context.trace_id, span_id, span_id if is_local_root else None, labels)
    except Exception:
        return None


_UNKNOWN = object()
