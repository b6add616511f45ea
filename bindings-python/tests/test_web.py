"""Middlewares with real frameworks: each request's samples carry method, route and trace; responses are unchanged."""

from __future__ import annotations

import asyncio
import copy

import httpx
import pytest
import spanprof
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from flask import Flask, stream_with_context
from opentelemetry import trace
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from spanprof import _spanprof as native
from spanprof import asgi, otel_link, wsgi
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}


async def requests(app, *paths: str, headers: dict | None = None) -> list[httpx.Response]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        return await asyncio.gather(*(client.get(path) for path in paths))


def fastapi_app() -> FastAPI:
    app = FastAPI()
    router = APIRouter(prefix="/shop")

    @app.get("/items/{item}")
    async def item(item: int) -> dict:
        await asyncio.sleep(0.001)
        return native.describe()

    @app.get("/in-thread/{item}")
    def in_thread(item: int) -> dict:
        return native.describe()

    @router.get("/cart/{user}")
    async def cart(user: str, described: dict = Depends(native.describe)) -> dict:
        assert described["labels"] == native.describe()["labels"]
        return described

    app.include_router(router, prefix="/v1")
    return app


def test_fastapi_requests_carry_method_route_and_trace():
    app = fastapi_app()
    app.add_middleware(asgi.Middleware)
    paths = ["/items/1", "/in-thread/2", "/v1/shop/cart/me", "/items/3"]
    answers = asyncio.run(requests(app, *paths, headers=TRACEPARENT))
    routes = ["/items/{item}", "/in-thread/{item}", "/v1/shop/cart/{user}", "/items/{item}"]
    for answer, route in zip(answers, routes):
        described = answer.json()
        assert described["labels"] == {"http.request.method": "GET", "http.route": route}
        assert (described["trace_id"], described["span_id"]) == (TRACE_ID, ""), "a span of its own, while the profiler runs"
    assert native.describe()["labels"] == {}


def test_the_application_and_the_server_get_the_same_scope_as_without_the_middleware():
    seen = []

    async def server(scope, receive, send):
        await asgi.Middleware(fastapi_app())(scope, receive, send)
        seen.append(scope)

    asyncio.run(requests(server, "/items/1"))
    assert seen[0]["route"].path == "/items/{item}"
    assert seen[0]["path_params"] == {"item": "1"}


def test_a_hundred_concurrent_requests_have_only_their_own_labels():
    app = FastAPI()

    @app.get("/a/{number}")
    async def a(number: int, request: Request) -> dict:
        await asyncio.sleep(0.001 * (number % 5))
        return native.describe()["labels"]

    @app.get("/b/{number}")
    async def b(number: int) -> dict:
        await asyncio.sleep(0.001 * (number % 3))
        return native.describe()["labels"]

    app.add_middleware(asgi.Middleware)
    paths = [f"/{'ab'[number % 2]}/{number}" for number in range(100)]
    for path, answer in zip(paths, asyncio.run(requests(app, *paths))):
        assert answer.json()["http.route"] == path[:3] + "{number}"


def test_mounts_middlewares_and_missing_routes():
    async def inner(request):
        return JSONResponse(native.describe()["labels"])

    class Between(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            response = await call_next(request)
            response.headers["after"] = str("http.request.method" in native.describe()["labels"])
            return response

    app = Starlette(routes=[Mount("/api", routes=[Route("/things/{id}", inner)])])
    app.add_middleware(Between)
    app.add_middleware(asgi.Middleware)
    found, missing = asyncio.run(requests(app, "/api/things/7", "/nothing"))
    assert found.json() == {"http.request.method": "GET", "http.route": "/api/things/{id}"}
    assert found.headers["after"] == "True"
    assert missing.status_code == 404
    assert native.describe()["labels"] == {}


def test_an_exception_of_the_application_leaves_no_label():
    async def fails(scope, receive, send):
        raise KeyError("mine")

    async def main():
        with pytest.raises(KeyError):
            await asgi.Middleware(fails)({"type": "http", "method": "GET", "headers": []}, None, None)
        assert native.describe()["labels"] == {}

    asyncio.run(main())


def test_lifespan_passes_through_untouched():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope, native.describe()["labels"]))

    scope = {"type": "lifespan"}
    asyncio.run(asgi.Middleware(app)(scope, None, None))
    assert seen[0][0] is scope and seen[0][1] == {}


#: Each changes a scope; the result of the last expression is compared too.
CHANGES = (
    lambda scope: scope.setdefault("new", 1),
    lambda scope: scope.setdefault("method", 1),
    lambda scope: scope.pop("method"),
    lambda scope: scope.pop("absent", 1),
    lambda scope: scope.popitem(),
    lambda scope: scope.__delitem__("method"),
    lambda scope: scope.__ior__({"new": 1, "method": "PUT"}) is scope,
    lambda scope: scope.update(iter([("new", 1)]), method="PUT"),
    lambda scope: scope.clear(),
    lambda scope: scope.__setitem__("new", 1),
    lambda scope: [copied.clear() for copied in (scope.copy(), copy.copy(scope), copy.deepcopy(scope), scope | {}, {**scope})],
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_application_does_to_its_scope_is_done_to_the_servers_as_without_the_middleware(change):
    async def app(scope, receive, send):
        results.append((change(scope), dict(scope)))

    results, scopes = [], []
    for wrapped in (app, asgi.Middleware(app)):
        scopes.append({"type": "http", "method": "GET", "headers": []})
        asyncio.run(wrapped(scopes[-1], None, None))
    assert results[0] == results[1]
    assert scopes[0] == scopes[1] == results[1][1]



def test_an_unknown_method_is_labeled_as_other():
    seen = []

    async def app(scope, receive, send):
        seen.append(native.describe()["labels"])

    asyncio.run(asgi.Middleware(app)({"type": "http", "method": "BREW-7f3a", "headers": []}, None, None))
    assert seen == [{"http.request.method": "_OTHER"}]


@pytest.mark.parametrize("header", ["", "garbage", f"00-{'0' * 32}-{SPAN_ID}-01", f"00-{TRACE_ID}", "é" * 10])
def test_a_broken_traceparent_gives_no_link(header):
    app = fastapi_app()
    app.add_middleware(asgi.Middleware)
    (answer,) = asyncio.run(requests(app, "/items/1", headers={"traceparent": header.encode()}))
    assert answer.json()["trace_id"] == ""


def test_with_the_opentelemetry_sdk_the_servers_own_span_is_the_link():
    otel_link.install()
    app = fastapi_app()
    app.add_middleware(asgi.Middleware)
    provider = TracerProvider()
    FastAPIInstrumentor.instrument_app(app, tracer_provider=provider)
    (answer,) = asyncio.run(requests(app, "/items/1", headers=TRACEPARENT))
    described = answer.json()
    assert described["trace_id"] == TRACE_ID
    assert described["span_id"] not in ("", SPAN_ID)
    assert described["labels"]["http.route"] == "/items/{item}"
    assert trace.get_current_span() is trace.INVALID_SPAN


def flask_app() -> Flask:
    app = Flask(__name__)

    @app.get("/users/<name>")
    def user(name: str) -> dict:
        return native.describe()

    @app.get("/stream/<int:count>")
    def stream(count: int) -> Response:
        def parts():
            for _ in range(count):
                yield native.describe()["labels"].get("http.route", "none") + "\n"

        return app.response_class(stream_with_context(parts()))

    app.wsgi_app = wsgi.Middleware(app.wsgi_app)
    return app


def test_flask_requests_carry_method_route_and_trace_also_while_streaming():
    client = flask_app().test_client()
    described = client.get("/users/me", headers=TRACEPARENT).json
    assert described["labels"] == {"http.request.method": "GET", "http.route": "/users/<name>"}
    assert (described["trace_id"], described["span_id"]) == (TRACE_ID, ""), "a span of its own, while the profiler runs"
    assert client.get("/stream/3").text.split() == ["/stream/<int:count>"] * 3
    assert client.get("/nothing").status_code == 404
    assert native.describe()["labels"] == {}


def test_wsgi_bodies_are_unchanged():
    class FileWrapper:
        def __init__(self, file):
            self.file = file

    closed = []

    class Body:
        def __iter__(self):
            yield native.describe()["labels"]["http.request.method"].encode()
            assert native.describe()["labels"] == {"http.request.method": "GET"}

        def close(self):
            closed.append(True)

    environ = {"REQUEST_METHOD": "GET", "wsgi.file_wrapper": FileWrapper}
    blocks = [b"one"]
    assert wsgi.Middleware(lambda environ, start: blocks)(dict(environ), None) is blocks
    sent = FileWrapper(None)
    assert wsgi.Middleware(lambda environ, start: sent)(dict(environ), None) is sent
    body = wsgi.Middleware(lambda environ, start: Body())(dict(environ), None)
    assert list(body) == [b"GET"]
    body.close()
    assert closed == [True]
    assert native.describe()["labels"] == {}
    with pytest.raises(KeyError):
        wsgi.Middleware(lambda environ, start: {}["mine"])(dict(environ), None)
    assert native.describe()["labels"] == {}


def test_streamed_responses_of_fastapi_are_labeled():
    app = FastAPI()

    @app.get("/parts/{count}")
    async def parts(count: int) -> StreamingResponse:
        async def stream():
            for _ in range(count):
                await asyncio.sleep(0)
                yield native.describe()["labels"].get("http.route", "none") + "\n"

        return StreamingResponse(stream())

    app.add_middleware(asgi.Middleware)
    (answer,) = asyncio.run(requests(app, "/parts/3"))
    assert answer.text.split() == ["/parts/{count}"] * 3


def test_the_middlewares_work_inside_a_scope_of_the_program():
    with spanprof.tag_wrapper({"worker": "7"}):
        app = fastapi_app()
        app.add_middleware(asgi.Middleware)
        (answer,) = asyncio.run(requests(app, "/items/1"))
        assert answer.json()["labels"]["worker"] == "7"
        assert native.describe()["labels"] == {"worker": "7"}
    assert native.describe()["labels"] == {}
