"""ASGI middleware: labels every request's samples with method and route and, without an OpenTelemetry SDK, links its trace.

    app.add_middleware(spanprof.asgi.Middleware)        # Starlette, FastAPI
    app = spanprof.asgi.Middleware(app)                 # any ASGI application

The route becomes a label when the framework has resolved it: Starlette and FastAPI write it, or its endpoint, into the scope.
Not here: metrics, logging, changes of a response.
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
                await self.app(_RouteScope(scope), receive, send)
        finally:
            native.set_current(before)


def _traceparent(scope: Scope) -> str:
    for name, value in scope.get("headers", ()):
        if name == b"traceparent":
            return value.decode("latin-1")
    return ""


def _effective_route(scope: Scope) -> Any:
    # FastAPI stores the route without the prefixes of its routers, and the complete one under this key.
    fastapi = scope.get("fastapi")
    return fastapi.get("effective_route_context") if isinstance(fastapi, dict) else None


def _route_of(endpoint: Any, routes: Any) -> Any:
    # Starlette before 1.0 writes only the endpoint. An endpoint of several routes does not identify one.
    matching = [route for route in _flattened(routes) if getattr(route, "endpoint", None) is endpoint]
    return matching[0] if len(matching) == 1 else None


def _flattened(routes: Any) -> Iterator[Any]:
    for route in routes or ():
        yield route
        yield from _flattened(getattr(route, "routes", None))


class _RouteScope(dict):
    """The request's ASGI scope, written through to the server's; sets the label when the router writes the route."""

    __slots__ = ("_outer", "_route_labels", "_server_root_path")

    def __init__(self, outer: Scope) -> None:
        super().__init__(outer)
        self._outer = outer
        self._server_root_path = outer.get("root_path", "")
        self._route_labels: Any = None

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
        # A mounted application later writes its own, more specific route.
        if self._route_labels is not None:
            self._route_labels.__exit__(None, None, None)
            self._route_labels = None
        path = getattr(_effective_route(self) or route, "path", None)
        if isinstance(path, str):
            mounted = str(self.get("root_path", ""))
            server_root_path = str(self.get("app_root_path", self._server_root_path))
            if server_root_path and mounted.startswith(server_root_path):
                mounted = mounted[len(server_root_path) :]
            self._route_labels = native.tag_wrapper({"http.route": mounted + path})
            self._route_labels.__enter__()
