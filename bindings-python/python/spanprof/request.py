"""Labels of a request before routing, for the middlewares: its method and its trace."""

from __future__ import annotations

import re

from .native import native

_METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def request_labels(method: str, traceparent: str) -> dict[str, str]:
    """Labels of a request; includes the ids of its trace if no span of this process is current."""
    labels: dict[str, str] = {}
    if method:
        labels["http.request.method"] = method if method in _METHODS else "_OTHER"
    match = _TRACEPARENT.match(traceparent) if traceparent else None
    if match is not None and not native.is_linked():
        labels["trace_id"], labels["span_id"] = match.groups()
    return labels
