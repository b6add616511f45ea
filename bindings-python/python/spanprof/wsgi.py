"""WSGI middleware: labels every request's samples with method and route and, without an OpenTelemetry SDK, links its trace.

    app.wsgi_app = spanprof.wsgi.Middleware(app.wsgi_app)   # Flask
    application = spanprof.wsgi.Middleware(application)     # any WSGI application

    application = spanprof.wsgi.PprofMiddleware(application)   # serves /debug/pprof/

The route becomes a label when the framework has resolved it: Flask sends its signal ``request_started``. Not here: metrics,
logging, changes of a response.
"""

from __future__ import annotations

from http import HTTPStatus
from types import ModuleType
from typing import Any, Callable, Iterable, Iterator

from .imports import when_imported
from .native import native
from .pull import content_length, with_length
from .request import request_labels

_ROUTE_SCOPE = "spanprof.route_scope"


class Middleware:
    """Wraps a WSGI application."""

    def __init__(self, app: Callable[[dict, Callable], Iterable[bytes]]) -> None:
        self.app = app
        when_imported("flask.signals", _connect_to_flask)

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        labels = request_labels(environ.get("REQUEST_METHOD", ""), environ.get("HTTP_TRACEPARENT", ""))
        scope = native.tag_wrapper(labels)
        environ[_ROUTE_SCOPE] = None
        before = native.current()
        try:
            with scope:
                body = self.app(environ, start_response)
        finally:
            native.set_current(before)
            route_scope = environ.pop(_ROUTE_SCOPE, None)
        file_wrapper = environ.get("wsgi.file_wrapper")
        if isinstance(body, (list, tuple)) or (isinstance(file_wrapper, type) and isinstance(body, file_wrapper)):
            # The body is complete, or the server checks its type and sends it itself.
            return body
        return _LabeledBody(body, scope, route_scope)


class PprofMiddleware:
    """Serves profiles under ``path``; other requests go to ``app``. Without ``app``, an application to mount anywhere.

    A request for a profile occupies the server's worker for its whole length. Access is the server's matter, unless
    ``pull_token`` is set.
    """

    def __init__(
        self, app: Callable[[dict, Callable], Iterable[bytes]] | None = None, path: str = "/debug/pprof"
    ) -> None:
        self.app = app
        self.path = path.rstrip("/")

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if self.app is not None:
            if path != self.path and not path.startswith(self.path + "/"):
                return self.app(environ, start_response)
            path = path[len(self.path) :]
        headers = [
            (name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_")
        ]
        body = environ["wsgi.input"].read(content_length(environ.get("CONTENT_LENGTH")))
        method, query = environ.get("REQUEST_METHOD", ""), environ.get("QUERY_STRING", "")
        status, answered, content = native.pull(method, path, query, headers, body, lambda: False)
        start_response(f"{status} {HTTPStatus(status).phrase}", with_length(answered, content))
        return [] if method == "HEAD" else [content]


class _LabeledBody:
    """A streamed body: each part is produced under the request's labels; the server's work between parts is not labeled."""

    def __init__(self, body: Iterable[bytes], scope: Any, route_scope: Any) -> None:
        self._body = body
        self._parts: Iterator[bytes] | None = None
        self._scope = scope
        self._route_scope = route_scope

    def __iter__(self) -> "_LabeledBody":
        return self

    def __next__(self) -> bytes:
        with self._scope:
            if self._parts is None:
                self._parts = iter(self._body)
            if self._route_scope is None:
                return next(self._parts)
            with self._route_scope:
                return next(self._parts)

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            with self._scope:
                close()


def _connect_to_flask(signals: ModuleType) -> None:
    signals.request_started.connect(_on_request_started)


def _on_request_started(_app: Any, **_extra: Any) -> None:
    import flask

    rule = flask.request.url_rule
    environ = flask.request.environ
    if rule is not None and _ROUTE_SCOPE in environ and environ[_ROUTE_SCOPE] is None:
        route_scope = native.tag_wrapper({"http.route": rule.rule})
        environ[_ROUTE_SCOPE] = route_scope
        route_scope.__enter__()
