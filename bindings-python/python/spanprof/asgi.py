"""ASGI middleware: every request's samples carry its method, its route and, without an OpenTelemetry SDK, its trace.

    app.add_middleware(spanprof.asgi.Middleware)        # Starlette, FastAPI
    app = spanprof.asgi.Middleware(app)                 # any ASGI application

The route is a label as soon as the framework knows it: Starlette and FastAPI write it, or its endpoint, into the scope. Not here: metrics,
logging, anything that changes a response.
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Iterator

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
        before = native.current()
        try:
            with native.tag_wrapper(request_labels(scope.get("method", ""), _traceparent(scope))):
                await self.app(_WatchedScope(scope), receive, send)
        finally:
            native.set_current(before)


def _traceparent(scope: Scope) -> str:
    for name, value in scope.get("headers", ()):
        if name == b"traceparent":
            return value.decode("latin-1")
    return ""


def _effective_route(scope: Scope) -> Any:
    # FastAPI keeps the route without the prefixes it was included under, and those beside it.
    beside = scope.get("fastapi")
    return beside.get("effective_route_context") if isinstance(beside, dict) else None


def _route_of(endpoint: Any, routes: Any) -> Any:
    # Starlette before 1.0 writes the endpoint only. One that serves several routes tells none of them.
    found = [route for route in _flat(routes) if getattr(route, "endpoint", None) is endpoint]
    return found[0] if len(found) == 1 else None


def _flat(routes: Any) -> Iterator[Any]:
    for route in routes or ():
        yield route
        yield from _flat(getattr(route, "routes", None))


class _WatchedScope(dict):
    """The request's scope, writing through to the server's, that sees the router write the route into it."""

    __slots__ = ("_outer", "_route_scope", "_served_under")

    def __init__(self, outer: Scope) -> None:
        super().__init__(outer)
        self._outer = outer
        self._served_under = outer.get("root_path", "")
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
        elif "endpoint" in changed and "route" not in self:
            self._enter_route(_route_of(changed["endpoint"], getattr(self.get("router"), "routes", ())))

    def _enter_route(self, route: Any) -> None:
        # A mounted application writes its own, deeper route later.
        if self._route_scope is not None:
            self._route_scope.__exit__(None, None, None)
            self._route_scope = None
        path = getattr(_effective_route(self) or route, "path", None)
        if isinstance(path, str):
            mounted = str(self.get("root_path", ""))
            served_under = str(self.get("app_root_path", self._served_under))
            if served_under and mounted.startswith(served_under):
                mounted = mounted[len(served_under) :]
            self._route_scope = native.tag_wrapper({"http.route": mounted + path})
            self._route_scope.__enter__()
