"""WSGI middleware: labels every request's samples with method and route and, without an OpenTelemetry SDK, links its trace.

    app.wsgi_app = spanprof.wsgi.Middleware(app.wsgi_app)   # Flask
    application = spanprof.wsgi.Middleware(application)     # any WSGI application

    application = spanprof.wsgi.PprofMiddleware(application)   # serves /debug/pprof/

The route becomes a label when the framework has resolved it: Flask sends its signal ``request_started``. The end of each
request is reported, for counts and tail-based retention. Not here: metrics, logging, changes of a response.
"""

from __future__ import annotations

from http import HTTPStatus
from types import ModuleType
from typing import Any, Callable, Iterable, Iterator

from .imports import when_imported
from .native import native
from .pull import DEFAULT_PATH, content_length, split_path, with_length
from .request import Request

_REQUEST = "spanprof.request"


class Middleware:
    """Wraps a WSGI application."""

    def __init__(self, app: Callable[[dict, Callable], Iterable[bytes]]) -> None:
        self.app = app
        follow_flask()

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        return respond(self.app, environ, start_response)


def follow_flask() -> None:
    """Follows the routes of Flask."""
    when_imported("flask.signals", _connect_to_flask)


def respond(app: Callable[[dict, Callable], Iterable[bytes]], environ: dict, start_response: Callable) -> Iterable[bytes]:
    """The response of ``app``, labeled; in another middleware unchanged."""
    if _REQUEST in environ:
        return app(environ, start_response)
    request = _WsgiRequest(environ.get("REQUEST_METHOD", ""), environ.get("HTTP_TRACEPARENT", ""))
    environ[_REQUEST] = request
    before = native.current()
    is_complete = True
    try:
        request.scope.__enter__()
        body = app(environ, request.observed(start_response))
        file_wrapper = environ.get("wsgi.file_wrapper")
        # Else the body is complete, or the server checks its type and sends it itself.
        is_complete = isinstance(body, (list, tuple)) or (
            isinstance(file_wrapper, type) and isinstance(body, file_wrapper)
        )
        return body if is_complete else _LabeledBody(body, request, native.current())
    except Exception:
        request.is_error = True
        raise
    finally:
        native.set_current(before)
        environ.pop(_REQUEST, None)
        if is_complete:
            request.end()


class _WsgiRequest(Request):
    """A request with the scope of its route. Both scopes are open until this object ends."""

    __slots__ = ("route_scope",)

    def __init__(self, method: str, traceparent: str) -> None:
        super().__init__(method, traceparent)
        self.route_scope: Any = None

    def observed(self, start_response: Callable) -> Callable:
        """``start_response`` that stores whether the status is an error."""
        if not self.is_reported:
            return start_response

        def start(status: str, *arguments: Any, **keywords: Any) -> Any:
            self.is_error = str(status).startswith("5")
            return start_response(status, *arguments, **keywords)

        return start


class PprofMiddleware:
    """Serves profiles under ``path``; other requests go to ``app``. Without ``app``, an application to mount anywhere.

    A request for a profile occupies the server's worker for its whole length. Access is the server's matter, unless
    ``pull_token`` is set.
    """

    def __init__(
        self, app: Callable[[dict, Callable], Iterable[bytes]] | None = None, path: str = DEFAULT_PATH
    ) -> None:
        self.app = app
        self.path = path.rstrip("/")
        native.serve_pulls()

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        mount, rest = environ.get("SCRIPT_NAME", ""), environ.get("PATH_INFO", "")
        if self.app is not None:
            parts = split_path(rest, self.path)
            if parts is None:
                return self.app(environ, start_response)
            mount, rest = parts
        headers = [
            (name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_")
        ]
        body = environ["wsgi.input"].read(content_length(environ.get("CONTENT_LENGTH")))
        method, query = environ.get("REQUEST_METHOD", ""), environ.get("QUERY_STRING", "")
        status, answered, content = native.pull(method, mount, rest, query, headers, body, lambda: False)
        start_response(f"{status} {HTTPStatus(status).phrase}", with_length(answered, content))
        return [] if method == "HEAD" else [content]


class _LabeledBody:
    """A streamed body: each part is produced under the request's labels; the server's work between parts is not labeled."""

    def __init__(self, body: Iterable[bytes], request: _WsgiRequest, context: Any) -> None:
        self._body = body
        self._parts: Iterator[bytes] | None = None
        self._request = request
        #: The context at the end of the application.
        self._context = context

    def __iter__(self) -> "_LabeledBody":
        return self

    def __next__(self) -> bytes:
        before = native.current()
        try:
            native.set_current(self._context)
            if self._parts is None:
                self._parts = iter(self._body)
            return next(self._parts)
        except StopIteration:
            raise
        except Exception:
            self._request.is_error = True
            raise
        finally:
            native.set_current(before)

    def close(self) -> None:
        before = native.current()
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                native.set_current(self._context)
                close()
        finally:
            native.set_current(before)
            self._request.end()


def _connect_to_flask(signals: ModuleType) -> None:
    signals.request_started.connect(_on_request_started)


def _on_request_started(_app: Any, **_extra: Any) -> None:
    import flask

    current = flask.request._get_current_object()  # type: ignore[attr-defined]
    rule, request = current.url_rule, current.environ.get(_REQUEST)
    if rule is not None and request is not None and request.route_scope is None:
        request.route = rule.rule
        request.route_scope = native.tag_wrapper({"http.route": rule.rule})
        request.route_scope.__enter__()
