"""Installs the middlewares in the applications of web frameworks, made before or after ``start``: Flask, Starlette and FastAPI, Django,
aiohttp. Each is inside of OpenTelemetry's instrumentation of the framework, whose span then is the request.

A framework's classes are wrapped when the program imports it, and nothing of it is imported here. Wrapped: ``Flask.wsgi_app``
(2.0 to 3.1), ``Starlette.__call__`` (0.36 to 1.10), ``BaseHandler.load_middleware`` and ``get_response`` of Django (4.2 to 6.1),
``Application.pre_freeze`` of aiohttp (3.9 to 3.14). Not here: the middlewares.
"""

from __future__ import annotations

import functools
from types import ModuleType

from .imports import call, when_imported
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

_DJANGO = "spanprof.django.SpanprofMiddleware"

_installed = False


def install() -> None:
    """Follows the frameworks, unless ``requests=false``."""
    global _installed
    if not _installed and native.follows_requests():
        when_imported("flask.app", _in_flask)
        when_imported("starlette.applications", _in_starlette)
        when_imported("django.core.handlers.base", _in_django)
        when_imported("aiohttp.web_app", _in_aiohttp)
        _installed = True


def _in_flask(module: ModuleType) -> None:
    from . import wsgi

    original = module.Flask.wsgi_app
    wsgi.follow_flask()

    @functools.wraps(original)
    def wsgi_app(self: Any, environ: dict, start_response: Any) -> Any:
        if not native.follows_requests():
            return original(self, environ, start_response)
        return wsgi.respond(functools.partial(original, self), environ, start_response)

    module.Flask.wsgi_app = wsgi_app


def _in_starlette(module: ModuleType) -> None:
    original = module.Starlette.__call__

    @functools.wraps(original)
    async def __call__(self: Any, scope: Any, receive: Any, send: Any) -> None:
        if native.follows_requests():
            call(_wrap_stack, self, "the application of Starlette")
        await original(self, scope, receive, send)

    module.Starlette.__call__ = __call__


def _wrap_stack(app: Any) -> None:
    if app.middleware_stack is None:
        app.middleware_stack = app.build_middleware_stack()
    layer = app.middleware_stack
    if layer is app.__dict__.get("_spanprof_stack"):
        return
    from .asgi import Middleware

    # OpenTelemetry puts its middleware, and a second layer for errors in it, around this one.
    errors = None
    while layer is not None and layer is not app.router:
        if type(layer).__name__ == "ServerErrorMiddleware":
            errors = layer
        layer = getattr(layer, "app", None)
    if errors is None:
        app.middleware_stack = Middleware(app.middleware_stack)
    else:
        errors.app = Middleware(errors.app)
    app._spanprof_stack = app.middleware_stack


def _in_django(module: ModuleType) -> None:
    handler = module.BaseHandler
    load, respond, respond_async = handler.load_middleware, handler.get_response, handler.get_response_async

    @functools.wraps(load)
    def load_middleware(self: Any, *arguments: Any, **keywords: Any) -> None:
        self._spanprof_chain = None
        names = module.settings.MIDDLEWARE
        if _DJANGO not in names:
            of_opentelemetry = [at + 1 for at, name in enumerate(names) if name.startswith("opentelemetry.")]
            at = max(of_opentelemetry, default=0)
            module.settings.MIDDLEWARE = [*names[:at], _DJANGO, *names[at:]]
        try:
            load(self, *arguments, **keywords)
        finally:
            module.settings.MIDDLEWARE = names
        self._spanprof_chain = self._middleware_chain

    @functools.wraps(respond)
    def get_response(self: Any, request: Any) -> Any:
        call(_wrap_chain, self, "the handler of Django")
        return respond(self, request)

    @functools.wraps(respond_async)
    async def get_response_async(self: Any, request: Any) -> Any:
        call(_wrap_chain, self, "the handler of Django")
        return await respond_async(self, request)

    handler.load_middleware = load_middleware
    handler.get_response, handler.get_response_async = get_response, get_response_async


def _wrap_chain(handler: Any) -> None:
    # Of a handler that was made before `start`.
    if "_spanprof_chain" not in handler.__dict__:
        from .django import SpanprofMiddleware

        middleware = SpanprofMiddleware(handler._middleware_chain)
        handler._view_middleware.insert(0, middleware.process_view)
        handler._middleware_chain = handler._spanprof_chain = middleware


def _in_aiohttp(module: ModuleType) -> None:
    original = module.Application.pre_freeze

    @functools.wraps(original)
    def pre_freeze(self: Any) -> None:
        call(_add_to_aiohttp, self, "the application of aiohttp")
        original(self)

    module.Application.pre_freeze = pre_freeze


def _add_to_aiohttp(app: Any) -> None:
    from .aiohttp import middleware

    if not app.pre_frozen and middleware not in app.middlewares:
        is_opentelemetry = [getattr(other, "__module__", "").startswith("opentelemetry.") for other in app.middlewares]
        app.middlewares.insert(1 if is_opentelemetry[:1] == [True] else 0, middleware)
