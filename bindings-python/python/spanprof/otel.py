"""OpenTelemetry span processor: names the profile of each local root span, and reports its end.

Samples are linked to the active span without it (``otel_link``). The processor adds the attribute ``pyroscope.profile.id``,
which Grafana follows from a trace to its profile, and the label ``span_name``. Counts of requests and errors,
and tail-based retention (``retention="tail"``), require it, or a middleware. Needs ``opentelemetry-sdk``.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor as _SdkSpanProcessor

from . import otel_link
from .capture import set_profile_types
from .native import native

#: Attribute of a local root span that identifies its profile: its own span id.
PROFILE_ID = "pyroscope.profile.id"


class SpanProcessor(_SdkSpanProcessor):
    """Sets ``pyroscope.profile.id`` and ``profile.type`` on every local root span, and reports its duration and its status:
    ``provider.add_span_processor(SpanProcessor())``."""

    def __init__(self) -> None:
        otel_link.name_root_spans()
        otel_link.install()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.parent is None or span.parent.is_remote:
            context = span.get_span_context()
            span.set_attribute(PROFILE_ID, trace.format_span_id(context.span_id))
            set_profile_types(span)
            native.begin_root_span(context.trace_id, context.span_id)

    def on_end(self, span: Any) -> None:
        if span.parent is None or span.parent.is_remote:
            context = span.get_span_context()
            is_error = span.status.status_code is trace.StatusCode.ERROR
            native.end_root_span(context.trace_id, context.span_id, span.end_time - span.start_time, span.name, is_error)

    def shutdown(self) -> None:
        return None

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


PyroscopeSpanProcessor = SpanProcessor
