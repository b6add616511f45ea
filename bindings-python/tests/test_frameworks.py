"""Real frameworks, with the instrumentations of OpenTelemetry and without an SDK; the programs call only ``spanprof.start()``. Each
request has its endpoint and duration, the slow one its samples, and its local root is the one root span of its trace."""

from __future__ import annotations

import json
from collections import Counter

import pytest

COUNT = 12

COMMON = """
import asyncio, json, sys, time

HAS_SDK, START = sys.argv[1] == "sdk", sys.argv[2]
COUNT = int(sys.argv[3])

def start(when):
    if when == START:
        import spanprof
        spanprof.start(sample_rate=200, heap=False)

start("first")
if HAS_SDK:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    identity = {"service.name": "shop", "service.instance.id": "shop-1", "service.version": "7", "deployment.environment": "test"}
    provider = TracerProvider(resource=Resource.create(identity))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

def slow():
    begin = time.thread_time()
    while time.thread_time() - begin < 0.2:
        sum(range(200))
    time.sleep(0.1)

def work(number):
    if number == 7:
        slow()
    return "ok"

async def send_all(client):
    for number in range(1, COUNT + 1):
        response = await client.get(f"/cart/{number}")
        assert getattr(response, "status_code", 0) or response.status == 200

def ended():
    import spanprof
    spanprof.stop()
    spans = exporter.get_finished_spans() if HAS_SDK else []
    roots = [span for span in spans if span.parent is None or span.parent.is_remote]
    # The route of a span is the name of its request; instrumentations write it in different forms.
    method = lambda s: s.attributes.get("http.request.method") or s.attributes.get("http.method")
    routes = {f"{method(s)} {s.attributes['http.route']}" for s in roots if "http.route" in s.attributes}
    print(json.dumps([[[f"{s.context.trace_id:032x}", f"{s.context.span_id:016x}"] for s in roots], sorted(routes)]))
"""

ASGI_CLIENT = """
import httpx

async def main():
    start("last")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        await send_all(client)

asyncio.run(main())
ended()
"""

FASTAPI = """
from fastapi import FastAPI

app = FastAPI()

@app.get("/cart/{number}")
def cart(number: int):
    return work(number)

if HAS_SDK:
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    FastAPIInstrumentor.instrument_app(app)
""" + ASGI_CLIENT

# The instrumentation of ASGI names its spans by the method alone.
STARLETTE = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

async def cart(request):
    return PlainTextResponse(work(request.path_params["number"]))

app = Starlette(routes=[Route("/cart/{number:int}", cart)])
if HAS_SDK:
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
    app.add_middleware(OpenTelemetryMiddleware)
""" + ASGI_CLIENT

FLASK = """
from flask import Flask

app = Flask(__name__)

@app.get("/cart/<int:number>")
def cart(number):
    return work(number)

if HAS_SDK:
    from opentelemetry.instrumentation.flask import FlaskInstrumentor
    FlaskInstrumentor().instrument_app(app)
start("last")
client = app.test_client()
for number in range(1, COUNT + 1):
    assert client.get(f"/cart/{number}", buffered=True).status_code == 200
ended()
"""

DJANGO = """
import types
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

urls = types.ModuleType("urls_of_frameworks")
urls.urlpatterns = [path("cart/<int:number>", lambda request, number: HttpResponse(work(number)))]
sys.modules["urls_of_frameworks"] = urls
settings.configure(ROOT_URLCONF="urls_of_frameworks", MIDDLEWARE=[], ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
if HAS_SDK:
    from opentelemetry.instrumentation.django import DjangoInstrumentor
    DjangoInstrumentor().instrument()
django.setup()
"""
DJANGO_WSGI = DJANGO + """
from django.core.wsgi import get_wsgi_application
from werkzeug.test import Client

app = get_wsgi_application()
start("last")
for number in range(1, COUNT + 1):
    assert Client(app).get(f"/cart/{number}", buffered=True).status_code == 200
assert settings.MIDDLEWARE == [] or HAS_SDK
ended()
"""
DJANGO_ASGI = DJANGO + """
from django.core.asgi import get_asgi_application

app = get_asgi_application()
""" + ASGI_CLIENT

AIOHTTP = """
if HAS_SDK:
    from opentelemetry.instrumentation.aiohttp_server import AioHttpServerInstrumentor
    AioHttpServerInstrumentor().instrument()
from aiohttp import ClientSession, web

async def cart(request):
    return web.Response(text=work(int(request.match_info["number"])))

async def main():
    app = web.Application()
    app.router.add_get("/cart/{number}", cart)
    start("last")
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
        await send_all(client)
    await runner.cleanup()

asyncio.run(main())
ended()
"""

CELERY = """
from celery import Celery
from opentelemetry.instrumentation.celery import CeleryInstrumentor

CeleryInstrumentor().instrument()
app = Celery("shop", broker="memory://", backend="cache+memory://")

@app.task(name="cart")
def cart(number):
    return work(number)

start("last")
from celery.contrib.testing.worker import start_worker
with start_worker(app, perform_ping_check=False, pool="solo"):
    # In contexts of their own: the spans of the sender are roots too.
    for result in [cart.delay(number) for number in range(1, COUNT + 1)]:
        result.get(timeout=20)
ended()
"""

GRPC = """
from concurrent import futures
import grpc
from opentelemetry.instrumentation.grpc import GrpcInstrumentorServer

GrpcInstrumentorServer().instrument()

def cart(number, context):
    return work(number[0]).encode()

handler = grpc.method_handlers_generic_handler("shop.Shop", {"Cart": grpc.unary_unary_rpc_method_handler(cart)})
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((handler,))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
start("last")
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    for number in range(1, COUNT + 1):
        assert channel.unary_unary("/shop.Shop/Cart")(bytes([number])) == b"ok"
server.stop(None).wait()
ended()
"""


def check(target, endpoint: str, has_sdk: bool, has_sender: bool = False) -> None:
    roots, routes = json.loads(target.stdout.splitlines()[-1])
    (endpoint,) = routes or [endpoint]
    requests = target.profiles("requests").samples
    counts: Counter = Counter()
    for sample in requests:
        counts[sample.labels.get("endpoint")] += sample.values["requests"]
    assert counts[endpoint] == COUNT, counts
    work = target.profiles().through("slow")
    assert sum(sample.nanoseconds for sample in work) > 0.15e9
    (trace,) = {sample.labels["trace_id"] for sample in work}
    (slow,) = [sample for sample in requests if sample.labels.get("trace_id") == trace and sample.labels["endpoint"] == endpoint]
    assert 0.28 < int(slow.labels["duration"]) / 1e9
    if has_sdk:
        identity = json.loads(next(target.directory.rglob("requests-*.json")).read_text())
        names = ("service.name", "service.instance.id", "service.version", "deployment.environment")
        assert [identity[name] for name in names] == ["shop", "shop-1", "7", "test"]
        # The sender of a task has a root in the trace too.
        assert len({trace for trace, _ in roots}) * (1 + has_sender) == len(roots)
        assert [trace, slow.labels["span_id"]] in roots


HTTP = {
    "fastapi": (FASTAPI, "GET /cart/{number}"),
    "starlette": (STARLETTE, "GET /cart/{number:int}"),
    "flask": (FLASK, "GET /cart/<int:number>"),
    "django": (DJANGO_WSGI, "GET /cart/<int:number>"),
    "django asgi": (DJANGO_ASGI, "GET /cart/<int:number>"),
    "aiohttp": (AIOHTTP, "GET /cart/{number}"),
}


@pytest.mark.parametrize("name", HTTP)
@pytest.mark.parametrize("sdk, when", [("sdk", "first"), ("sdk", "last"), ("none", "first"), ("none", "last")])
def test_a_slow_request_is_explained_without_code_in_the_program(run_target, name, sdk, when):
    source, endpoint = HTTP[name]
    check(run_target(COMMON + source, sdk, when, str(COUNT)), endpoint, sdk == "sdk")


@pytest.mark.parametrize("source, endpoint", [(CELERY, "run/cart"), (GRPC, "/shop.Shop/Cart")], ids=["celery", "grpc"])
def test_a_slow_call_of_another_protocol_has_the_name_of_its_span(run_target, source, endpoint):
    check(run_target(COMMON + source, "sdk", "first", str(COUNT)), endpoint, True, source == CELERY)


SPANS = """
import sys, time
import spanprof
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

CASE = sys.argv[1]
spanprof.start(heap=False, requests=CASE != "off")
provider = TracerProvider()
if CASE == "own before":
    from spanprof.otel import SpanProcessor
    provider.add_span_processor(SpanProcessor())
trace.set_tracer_provider(provider)
if CASE == "own after":
    from spanprof.otel import SpanProcessor
    provider.add_span_processor(SpanProcessor())
for _ in range(10):
    tracer = trace.get_tracer("t")
    with tracer.start_as_current_span("job") as span, tracer.start_as_current_span("part"):
        with tracer.start_as_current_span("GET upstream", kind=trace.SpanKind.CLIENT):
            time.sleep(0.002)
        assert ("pyroscope.profile.id" in span.attributes) == (CASE != "off")
    with tracer.start_as_current_span("GET of a job", kind=trace.SpanKind.CLIENT):
        pass
spanprof.stop()
"""


@pytest.mark.parametrize("case, count", [("own before", 10), ("own after", 10), ("none", 10), ("off", 0)])
def test_each_root_span_is_reported_once_unless_requests_are_off(run_target, case, count):
    target = run_target(SPANS, case)
    samples = target.profiles("requests").samples
    awaited = target.profiles("awaited").samples
    assert sum(sample.nanoseconds for sample in awaited) >= count * 2_000_000
    assert {sample.leaf for sample in awaited} == ({"GET upstream"} if count else set())
    assert sum(sample.values["requests"] for sample in samples) == count
    assert {sample.labels["endpoint"] for sample in samples} == ({"job"} if count else set())


def test_a_provider_that_cannot_be_extended_is_one_line_of_the_log(run_target):
    target = run_target(
        """
        import spanprof
        from opentelemetry import trace

        class Provider(trace.TracerProvider):
            def get_tracer(self, *arguments, **keywords):
                return trace.NoOpTracer()

        spanprof.start(heap=False)
        trace.set_tracer_provider(Provider())
        assert isinstance(trace.get_tracer_provider(), Provider)
        """
    )
    assert target.stderr.count("requests have no duration") == 1, target.stderr


NESTED = """
import httpx, asyncio
import spanprof
from spanprof import request
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
import spanprof.asgi, spanprof.wsgi
from flask import Flask

made = []
original = request.Request.__init__
def counted(self, *arguments, **keywords):
    made.append(self)
    original(self, *arguments, **keywords)
request.Request.__init__ = counted

spanprof.start(heap=False)
inner = Starlette(routes=[Route("/{number}", lambda request: PlainTextResponse("ok"))])
app = Starlette(routes=[Mount("/cart", inner)])
app.add_middleware(spanprof.asgi.Middleware)
flask = Flask(__name__)
flask.get("/cart/<number>")(lambda number: "ok")
flask.wsgi_app = spanprof.wsgi.Middleware(flask.wsgi_app)

async def main():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        assert (await client.get("/cart/1")).text == "ok"

asyncio.run(main())
assert flask.test_client().get("/cart/1", buffered=True).text == "ok"
assert len(made) == 2, made
spanprof.stop()
"""


def test_a_middleware_of_the_program_and_mounted_applications_label_a_request_once(run_target):
    samples = run_target(NESTED).profiles("requests").samples
    assert {sample.labels["endpoint"] for sample in samples} == {"GET /cart/{number}", "GET /cart/<number>"}
