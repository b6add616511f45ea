"""ASGI middleware: every request's samples carry its method, its route and, without an OpenTelemetry SDK, its trace.

    app.add_middleware(spanprof.asgi.Middleware)        # Starlette, FastAPI
    app = spanprof.asgi.Middleware(app)                 # any ASGI application

The route is a label as soon as the framework knows it: Starlette and FastAPI write it into the scope. Not here: metrics,
logging, anything that changes a response.
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable

from .request import request_labels
from .native import native

Scope = dict
Receive = Callable[[], Awaitable[dict]]
Send = Callable[[dict], Awaitable[None]]


class Middleware:
    """Wraps an ASGI application."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        watched = _WatchedScope(scope)
        with native.tag_wrapper(request_labels(scope.get("method", ""), _traceparent(scope))):
            try:
                await self.app(watched, receive, send)
            finally:
                watched.leave_route()


def _traceparent(scope: Scope) -> str:
    for name, value in scope.get("headers", ()):
        if name == b"traceparent":
            return value.decode("latin-1")
    return ""


class _WatchedScope(dict):
    """The request's scope, writing through to the server's, that sees the router write the route into it."""

    __slots__ = ("_outer", "_route_scope")

    def __init__(self, outer: Scope) -> None:
        super().__init__(outer)
        self._outer = outer
        self._route_scope: Any = None

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._outer[key] = value
        if key == "route":
            self._enter_route(value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        changed = dict(*args, **kwargs)
        self._outer.update(changed)
        if "route" in changed:
            self._enter_route(changed["route"])

    def _enter_route(self, route: Any) -> None:
        path = getattr(route, "path", None)
        if isinstance(path, str) and self._route_scope is None:
            mounted = str(self.get("root_path", ""))
            served_under = str(self.get("app_root_path", self._outer.get("root_path", "")))
            if served_under and mounted.startswith(served_under):
                mounted = mounted[len(served_under) :]
            self._route_scope = native.tag_wrapper({"http.route": mounted + path})
            self._route_scope.__enter__()

    def leave_route(self) -> None:
        if self._route_scope is not None:
            self._route_scope.__exit__(None, None, None)
