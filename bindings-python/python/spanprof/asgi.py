"""ASGI middleware: labels every request's samples with method and route and, without an OpenTelemetry SDK, links its trace.

    app.add_middleware(spanprof.asgi.Middleware)        # Starlette, FastAPI
    app = spanprof.asgi.Middleware(app)                 # any ASGI application

    app.mount("/debug/pprof", spanprof.asgi.PprofMiddleware())      # Starlette, FastAPI
    app = spanprof.asgi.PprofMiddleware(app)                        # any ASGI application

The route becomes a label when the framework has resolved it: Starlette and FastAPI write it, or its endpoint, into the scope.
The end of each HTTP request is reported, for counts and tail-based retention. Not here: metrics, logging, changes of a response.
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Iterator

from .native import native
from .pull import DEFAULT_PATH, MAX_BODY_BYTES, PullThread, split_path, with_length
from .request import Request

Scope = dict
Receive = Callable[[], Awaitable[dict]]
Send = Callable[[dict], Awaitable[None]]


class Middleware:
    """Wraps an ASGI application."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not inside of another middleware of this class.
        if scope["type"] not in ("http", "websocket") or isinstance(scope, _RouteScope):
            await self.app(scope, receive, send)
            return
        before = native.current()
        # A connection of a web socket is no request.
        request = Request(scope.get("method", ""), _traceparent(scope), has_end=scope["type"] == "http")
        try:
            request.scope.__enter__()
            await self.app(_RouteScope(scope, request), receive, _observed(send, request))
        except Exception:
            request.is_error = True
            raise
        finally:
            native.set_current(before)
            request.end()


class PprofMiddleware:
    """Serves profiles under ``path``; other requests go to ``app``. Without ``app``, an application to mount anywhere.

    A request for a profile runs on a thread of its own; the event loop is not blocked. Access is the server's matter, unless
    ``pull_token`` is set.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]] | None = None,
        path: str = DEFAULT_PATH,
    ) -> None:
        self.app = app
        self.path = path.rstrip("/")
        native.serve_pulls()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Servers write the prefix of a proxy into `root_path`; frameworks that mount an application add its path.
        mount, rest = scope.get("root_path", ""), scope.get("path", "")
        if mount and rest.startswith(mount):
            rest = rest[len(mount) :]
        if self.app is not None:
            parts = split_path(rest, self.path) if scope["type"] == "http" else None
            if parts is None:
                await self.app(scope, receive, send)
                return
            mount, rest = parts
        elif scope["type"] != "http":
            return
        body = await _body(receive)
        if body is None:
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope.get("headers", ())]
        query = scope.get("query_string", b"").decode("latin-1")
        arguments = (scope["method"], mount, rest, query, headers, body)
        status, answered, content = await _pull_on_thread(arguments, receive)
        encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in with_length(answered, content)]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})


async def _body(receive: Receive) -> bytes | None:
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > MAX_BODY_BYTES or not message.get("more_body", False):
            return b"".join(parts)[: MAX_BODY_BYTES + 1]


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pull_on_thread(arguments: tuple, receive: Receive) -> tuple:
    # Not on the loop's executor: a pull would occupy one of its threads for up to a minute.
    import asyncio

    loop = asyncio.get_running_loop()
    answer: asyncio.Future = loop.create_future()
    pull = PullThread(arguments, lambda result: loop.call_soon_threadsafe(_set_once, answer, result))
    watch = asyncio.ensure_future(_disconnect(receive))
    watch.add_done_callback(lambda _: pull.cancel())
    try:
        pull.start()
        return await answer
    finally:
        pull.cancel()
        watch.cancel()


def _set_once(future: Any, result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _observed(send: Send, request: Request) -> Send:
    """``send`` that stores whether the response's status is an error."""
    if not request.is_reported:
        return send

    async def observed(message: dict) -> None:
        if message["type"] == "http.response.start":
            request.is_error = message.get("status", 0) >= 500
        await send(message)

    return observed


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

    __slots__ = ("_outer", "_request", "_route_labels", "_server_root_path")

    def __init__(self, outer: Scope, request: Request) -> None:
        super().__init__(outer)
        self._outer = outer
        self._request = request
        self._server_root_path = outer.get("root_path", "")
        self._route_labels: Any = None

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._outer[key] = value
        if key == "route":
            self._enter_route(value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._outer.pop(key, None)

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple:
        # A copy belongs to the application: nothing is written through.
        return dict, (dict(self),)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        value = super().pop(key, *default)
        self._outer.pop(key, None)
        return value

    def popitem(self) -> tuple:
        key, value = super().popitem()
        self._outer.pop(key, None)
        return key, value

    def clear(self) -> None:
        super().clear()
        self._outer.clear()

    def update(self, *args: Any, **kwargs: Any) -> None:
        changed = dict(*args, **kwargs)
        super().update(changed)
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
            self._request.route = mounted + path
            self._route_labels = native.tag_wrapper({"http.route": mounted + path})
            self._route_labels.__enter__()
