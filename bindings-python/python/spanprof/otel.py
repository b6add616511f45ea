"""OpenTelemetry span processor: names the profile of each local root span, and reports its end.

Samples are linked to the active span without it (``otel_link``). The processor adds the attribute ``pyroscope.profile.id``,
which Grafana follows from a trace to its profile. Counts of requests and errors, their durations, and tail-based retention
(``retention="tail"``) require it, or a middleware. ``start`` registers one (``tracer_provider``). Needs ``opentelemetry-sdk``.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor as _SdkSpanProcessor

from . import imports, otel_link
from .capture import set_profile_types
from .native import native

#: Attribute of a local root span that identifies its profile: its own span id.
PROFILE_ID = "pyroscope.profile.id"


#: Kinds of spans that are calls, of which the request awaits the end. One without a parent is no request.
_CALLS = (trace.SpanKind.CLIENT, trace.SpanKind.PRODUCER)


class _RootSpanProcessor(_SdkSpanProcessor):
    """Reports local root spans, and calls below them; never raises into the program."""

    #: Resource of the last span.
    _resource: Any = None

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.parent is None or span.parent.is_remote:
            imports.call(self._begin, span, "a span")
        elif span.kind in _CALLS:
            imports.call(native.begin_client_span, span.context.span_id, "a span")

    def on_end(self, span: Any) -> None:
        if span.kind in _CALLS:
            imports.call(self._end_call, span, "a span")
        elif span.parent is None or span.parent.is_remote:
            imports.call(self._end, span, "a span")

    def _begin(self, span: Any) -> None:
        # The SDK replaces it in a forked child.
        if span.resource is not self._resource:
            self._adopt(span.resource)
        context = span.get_span_context()
        span.set_attribute(PROFILE_ID, trace.format_span_id(context.span_id))
        set_profile_types(span)
        native.begin_root_span(context.trace_id, context.span_id)

    def _end(self, span: Any) -> None:
        context, attributes = span.get_span_context(), span.attributes or {}
        method = attributes.get("http.request.method") or attributes.get("http.method") or ""
        native.end_root_span(
            context.trace_id,
            context.span_id,
            span.end_time - span.start_time,
            span.name,
            str(method),
            str(attributes.get("http.route") or ""),
            span.status.status_code is trace.StatusCode.ERROR,
        )

    def _end_call(self, span: Any) -> None:
        native.end_client_span(span.context.span_id, span.name, span.end_time - span.start_time)

    def _adopt(self, resource: Any) -> None:
        self._resource = resource
        native.adopt_resource(resource.attributes)

    def shutdown(self) -> None:
        return None

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class SpanProcessor(_RootSpanProcessor):
    """Sets ``pyroscope.profile.id`` and ``profile.type`` on every local root span, reports its duration and its status, and adds the
    label ``span_name``: ``provider.add_span_processor(SpanProcessor())``."""

    def __init__(self) -> None:
        otel_link.name_root_spans()
        otel_link.install()


class RegisteredSpanProcessor(_RootSpanProcessor):
    """The processor that ``start`` registers. It does nothing while the program's own :class:`SpanProcessor` is registered too."""

    def __init__(self, provider: Any) -> None:
        #: The SDK's list of processors, a tuple that is replaced when one is added (opentelemetry-sdk 1.x).
        self._list: Any = getattr(provider, "_active_span_processor", None)
        self._checked: Any = None
        self._is_second = False

    @classmethod
    def register(cls, provider: Any) -> None:
        """Adds a processor to the provider, once."""
        registered = cls(provider)
        if not any(isinstance(processor, cls) for processor in registered._processors()):
            registered._adopt(provider.resource)
            provider.add_span_processor(registered)

    def _processors(self) -> tuple:
        return getattr(self._list, "_span_processors", ())

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        processors = self._processors()
        if processors is not self._checked:
            self._checked = processors
            self._is_second = any(isinstance(processor, SpanProcessor) for processor in processors)
        if not self._is_second:
            super().on_start(span, parent_context)

    def on_end(self, span: Any) -> None:
        if not self._is_second:
            super().on_end(span)


PyroscopeSpanProcessor = SpanProcessor
