"""What a request says about itself before any framework looked at it: the labels that both middlewares start with."""

from __future__ import annotations

import re

from .native import native

_METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def request_labels(method: str, traceparent: str) -> dict[str, str]:
    """Labels of a request; with ids of its trace when no span of this process is current."""
    labels: dict[str, str] = {}
    if method:
        labels["http.request.method"] = method if method in _METHODS else "_OTHER"
    found = _TRACEPARENT.match(traceparent) if traceparent else None
    if found is not None and not native.is_linked():
        labels["trace_id"], labels["span_id"] = found.groups()
    return labels
