"""A request in a middleware: the labels of its samples, and the report of its end."""

from __future__ import annotations

import re
import time

from .native import native

_METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class Request:
    """A request from its begin on. Its end is reported once, unless a span processor reports it."""

    __slots__ = ("scope", "is_reported", "route", "is_error", "_method", "_id", "_begin_ns")

    def __init__(self, method: str, traceparent: str, has_end: bool = True, route: str = "") -> None:
        labels = request_labels(method, traceparent)
        if route:
            labels["http.route"] = route
        self._id = native.begin_request(labels.get("trace_id", "")) if has_end else 0
        #: Whether this object reports the end.
        self.is_reported = self._id != 0
        #: Labels of the request's samples, with its id as local root.
        self.scope = native.tag_wrapper(native.in_request(labels, self._id) if self.is_reported else labels)
        #: Template of the path, once the framework has resolved it.
        self.route = route
        #: Whether the response has a status of 500 or more, or there was an exception.
        self.is_error = False
        self._method = labels.get("http.request.method", "")
        self._begin_ns = time.monotonic_ns() if self.is_reported else 0

    def end(self) -> None:
        """Reports the end; later calls have no effect."""
        if self.is_reported:
            self.is_reported = False
            duration_ns = time.monotonic_ns() - self._begin_ns
            native.end_request(self._id, duration_ns, f"{self._method} {self.route}".strip(), self.is_error)


def request_labels(method: str, traceparent: str) -> dict[str, str]:
    """Labels of a request; includes the trace id of its caller if no span of this process is current."""
    labels: dict[str, str] = {}
    if method:
        labels["http.request.method"] = method if method in _METHODS else "_OTHER"
    match = _TRACEPARENT.match(traceparent) if traceparent else None
    if match is not None and not native.is_linked():
        labels["trace_id"] = match.group(1)
    return labels
