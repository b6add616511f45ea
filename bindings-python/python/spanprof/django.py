"""Django middleware: labels every request's samples with method and route and, without an OpenTelemetry SDK, links its trace.

    MIDDLEWARE = ["spanprof.django.SpanprofMiddleware", ...]

Put it first in the list, so that the other middlewares are labeled too. Works under WSGI and ASGI, with sync and async views.
The route becomes a label when Django has resolved it; a streamed body is produced after the labels have ended. Not here:
metrics, logging, changes of a response.
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from .native import native
from .request import request_labels


class SpanprofMiddleware:
    """Labels each request."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        self.process_view: Callable[..., Any] = _enter_route
        if self._is_async:
            markcoroutinefunction(self)
            # Django runs a sync hook of an async middleware in another thread.
            self.process_view = _enter_route_async

    def __call__(self, request: Any) -> Any:
        if self._is_async:
            return self._respond_async(request)
        before = native.current()
        try:
            with native.tag_wrapper(_labels(request)):
                return self.get_response(request)
        finally:
            # Also ends the scope that `_enter_route` entered.
            native.set_current(before)

    async def _respond_async(self, request: Any) -> Any:
        before = native.current()
        try:
            with native.tag_wrapper(_labels(request)):
                response: Awaitable[Any] = self.get_response(request)
                return await response
        finally:
            native.set_current(before)


def _labels(request: Any) -> dict[str, str]:
    return request_labels(request.method or "", request.META.get("HTTP_TRACEPARENT", ""))


def _enter_route(request: Any, view: object, arguments: object, keywords: object) -> None:
    route = getattr(request.resolver_match, "route", None)
    if isinstance(route, str):
        # `re_path` gives a regular expression, which is used unchanged.
        path = route if route.startswith(("/", "^")) else f"/{route}"
        native.tag_wrapper({"http.route": path}).__enter__()


async def _enter_route_async(request: Any, view: object, arguments: object, keywords: object) -> None:
    _enter_route(request, view, arguments, keywords)
