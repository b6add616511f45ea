"""aiohttp.web middleware: labels every request's samples with method and route and, without an OpenTelemetry SDK, links its trace.

    web.Application(middlewares=[spanprof.aiohttp.middleware])

``start`` installs it (``frameworks``). The end of each request is reported, for counts and tail-based retention. Not here: metrics,
logging, changes of a response.
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable

from .native import native
from .request import Request


async def middleware(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """A middleware of the current style."""
    resource = getattr(request.match_info.route, "resource", None)
    route = getattr(resource, "canonical", None) or ""
    # A connection of a web socket is no request.
    has_end = request.headers.get("Upgrade", "").lower() != "websocket"
    own = Request(request.method, request.headers.get("traceparent", ""), has_end, route)
    before = native.current()
    try:
        with own.scope:
            response = await handler(request)
        own.is_error = getattr(response, "status", 0) >= 500
        return response
    except Exception as error:
        # `HTTPException` has the status of its response.
        own.is_error = getattr(error, "status", 500) >= 500
        raise
    finally:
        native.set_current(before)
        own.end()


middleware.__middleware_version__ = 1  # type: ignore[attr-defined]
