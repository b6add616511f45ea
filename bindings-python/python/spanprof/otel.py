"""OpenTelemetry span processor for Pyroscope's span profiles: names the profile of each local root span.

Samples are linked to the active span without it (``otel_link``). The processor adds the attribute ``pyroscope.profile.id``,
which Grafana follows from a trace to its profile, and the label ``span_name``. Needs ``opentelemetry-sdk``.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor as _SdkSpanProcessor

from . import otel_link

#: Attribute of a local root span that identifies its profile: its own span id.
PROFILE_ID = "pyroscope.profile.id"


class SpanProcessor(_SdkSpanProcessor):
    """Sets ``pyroscope.profile.id`` on every local root span: ``provider.add_span_processor(SpanProcessor())``."""

    def __init__(self) -> None:
        otel_link.name_root_spans()
        otel_link.install()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.parent is None or span.parent.is_remote:
            span.set_attribute(PROFILE_ID, trace.format_span_id(span.get_span_context().span_id))

    def on_end(self, span: Any) -> None:
        return None

    def shutdown(self) -> None:
        return None

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


PyroscopeSpanProcessor = SpanProcessor
