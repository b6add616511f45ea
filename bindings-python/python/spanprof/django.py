"""Django middleware: labels every request's samples with method and route and, without an OpenTelemetry SDK, links its trace.

    MIDDLEWARE = ["spanprof.django.SpanprofMiddleware", ...]

Put it first in the list, so that the other middlewares are labeled too. Works under WSGI and ASGI, with sync and async views.
The route becomes a label when Django has resolved it; a streamed body is produced after the labels have ended. The end of
each request, up to its response without a streamed body, is reported, for counts and tail-based retention. Not here: metrics, logging,
changes of a response.
"""

from __future__ import annotations

from typing import Any, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from .native import native
from .request import Request


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
        own = _begin(request)
        try:
            own.scope.__enter__()
            response = self.get_response(request)
            own.is_error = getattr(response, "status_code", 0) >= 500
            return response
        except Exception:
            own.is_error = True
            raise
        finally:
            # Also ends the scope that `_enter_route` entered.
            native.set_current(before)
            _end(own, request)

    async def _respond_async(self, request: Any) -> Any:
        before = native.current()
        own = _begin(request)
        try:
            own.scope.__enter__()
            response: Any = await self.get_response(request)
            own.is_error = getattr(response, "status_code", 0) >= 500
            return response
        except Exception:
            own.is_error = True
            raise
        finally:
            native.set_current(before)
            _end(own, request)


def _begin(request: Any) -> Request:
    return Request(request.method or "", request.META.get("HTTP_TRACEPARENT", ""))


def _end(own: Request, request: Any) -> None:
    own.route = _route(request) or ""
    own.end()


def _route(request: Any) -> str | None:
    route = getattr(request.resolver_match, "route", None)
    if not isinstance(route, str):
        return None
    # `re_path` gives a regular expression, which is used unchanged.
    return route if route.startswith(("/", "^")) else f"/{route}"


def _enter_route(request: Any, view: object, arguments: object, keywords: object) -> None:
    route = _route(request)
    if route is not None:
        native.tag_wrapper({"http.route": route}).__enter__()


async def _enter_route_async(request: Any, view: object, arguments: object, keywords: object) -> None:
    _enter_route(request, view, arguments, keywords)
