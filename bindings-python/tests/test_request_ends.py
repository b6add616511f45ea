"""Tail-based retention by the middlewares: which requests keep timestamps is compared with the durations inside and outside of
the middleware. Every request is labeled with its number."""

from __future__ import annotations

from collections import Counter

import pytest

LIMIT = 0.05

COMMON = """
import asyncio, time
import spanprof

requests = {}

def work(number):
    began = time.monotonic()
    with spanprof.tag_wrapper(request=number):
        start, seconds = time.thread_time(), 0.06 if number % 50 == 0 else 0.02 if number % 50 == 25 else 0.0005
        while time.thread_time() - start < seconds:
            sum(range(100))
    requests[number] = [time.monotonic() - began]
    if number % 50 == 25:
        raise ValueError("on purpose")
    return "ok"

def began():
    spanprof.start(sample_rate=500, heap=False, retention="tail", tail_duration=0.05, upload_interval=1)

def timed(number, send):
    start = time.monotonic()
    status = send(f"/carts/{number}")
    requests[number].append(time.monotonic() - start)
    assert status == (500 if number % 50 == 25 else 200), (number, status)

async def timed_async(number, send):
    start = time.monotonic()
    status = await send(f"/carts/{number}")
    requests[number].append(time.monotonic() - start)
    assert status == (500 if number % 50 == 25 else 200), (number, status)

async def send_all(client):
    async def status(path):
        return (await client.get(path)).status_code
    for first in range(0, COUNT, 10):
        # Ten at a time. A request that fails runs alone, so that it is not kept for its duration.
        group = [timed_async(number, status) for number in range(first, first + 10) if number % 50 != 25]
        await asyncio.gather(*group)
        if len(group) == 9:
            await timed_async(first + 5, status)

def ended():
    spanprof.flush()
    stats = spanprof.stats()
    spanprof.stop()
    assert stats["tail.requests"] == COUNT, stats
    # Samples of an unsampled span before and after its middleware's request belong to no request.
    if not IS_UNSAMPLED:
        assert stats["tail.undecided"] == stats["tail.held_bytes"] == 0, stats
    # On a loaded machine, few failed requests may all take the limit as well.
    assert stats["tail.kept_error"] > 0 or COUNT < 1000, stats
    for number, (inside, outside) in requests.items():
        print(number, inside, outside)
"""

FLASK = """
from flask import Flask
import spanprof.wsgi

app = Flask(__name__)

@app.get("/carts/<int:number>")
def cart(number):
    return work(number)

app.wsgi_app = spanprof.wsgi.Middleware(app.wsgi_app)
client = app.test_client()
began()
for number in range(COUNT):
    timed(number, lambda path: client.get(path, buffered=True).status_code)
ended()
"""

WSGI_STREAM = """
import spanprof.wsgi
from werkzeug.test import Client

def app(environ, start_response):
    number = int(environ["PATH_INFO"].rsplit("/", 1)[1])
    def body():
        # The status of a stream is sent before its work; the failure is the exception.
        start_response("200 OK", [])
        yield work(number).encode()
    return body()

app = spanprof.wsgi.Middleware(app)
began()
for number in range(COUNT):
    def send(path):
        try:
            return Client(app).get(path, buffered=True).status_code
        except ValueError:
            return 500
    timed(number, send)
ended()
"""

FASTAPI = """
import httpx
import spanprof.asgi
from fastapi import FastAPI

app = FastAPI()

@app.get("/carts/{number}")
async def cart(number: int):
    await asyncio.sleep(0)
    return work(number)

APP
async def main():
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=HEADERS) as client:
        began()
        await send_all(client)
        ended()

asyncio.run(main())
"""
MIDDLEWARE = "app.add_middleware(spanprof.asgi.Middleware)\n"

OTEL = """
from opentelemetry import trace
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from spanprof.otel import SpanProcessor

provider = TracerProvider(sampler=SAMPLER)
provider.add_span_processor(SpanProcessor())
FastAPIInstrumentor.instrument_app(app, tracer_provider=provider)
"""
OUTERMOST = "app = spanprof.asgi.Middleware(app)\n"

DJANGO = """
import sys, types
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

def cart(request, number):
    return HttpResponse(work(number))

async def async_cart(request, number):
    await asyncio.sleep(0)
    return HttpResponse(work(number))

urls = types.ModuleType("urls_of_requests")
urls.urlpatterns = [path("carts/<int:number>", VIEW)]
sys.modules["urls_of_requests"] = urls
settings.configure(
    ROOT_URLCONF="urls_of_requests", MIDDLEWARE=["spanprof.django.SpanprofMiddleware"], ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None
)
django.setup()
from django.test import AsyncClient, Client
"""
DJANGO_SYNC = DJANGO.replace("VIEW", "cart") + """
client = Client(raise_request_exception=False)
began()
for number in range(COUNT):
    timed(number, lambda path: client.get(path).status_code)
ended()
"""
DJANGO_ASYNC = DJANGO.replace("VIEW", "async_cart") + """
async def main():
    began()
    await send_all(AsyncClient(raise_request_exception=False))
    ended()

asyncio.run(main())
"""


def fastapi(app: str, headers: str = "{}") -> str:
    return FASTAPI.replace("APP", app).replace("HEADERS", headers)


TRACEPARENT = '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'


def check(target, count: int) -> None:
    """A failed request, or one that took the limit inside of the middleware, is kept; one that did not outside of it is not."""
    durations = {}
    for line in target.stdout.splitlines():
        number, inside, outside = line.split()
        durations[int(number)] = (float(inside), float(outside))
    assert len(durations) == count
    failed = {number for number in durations if number % 50 == 25}
    required = {number for number, (inside, _) in durations.items() if inside >= LIMIT or number in failed}
    allowed = failed | {number for number, (_, outside) in durations.items() if outside >= LIMIT}
    assert len(required) >= count // 25
    samples = [sample for file in target.profiles().files for sample in file.samples if "request" in sample.labels]
    kept = {int(sample.labels["request"]) for sample in samples if "end_timestamp_ns" in sample.labels}
    # Every request that worked long has samples; one that only waited may have none.
    worked = {number for number in durations if number % 25 == 0}
    assert worked <= kept <= allowed, (sorted(worked - kept), sorted(kept - allowed))
    plain = {int(sample.labels["request"]) for sample in samples if "end_timestamp_ns" not in sample.labels}
    assert not plain & (kept | required), "of a kept request every sample is kept"
    assert plain, "the fast requests are sampled too"
    counted, recorded = Counter(), []
    for sample in target.profiles("requests").samples:
        counted.update(sample.values)
        recorded += [int(sample.labels["duration"]) / 1e9] * sample.values["requests"]
    # Rounded by less than 7 %.
    for duration, inside, outside in zip(sorted(recorded), *map(sorted, zip(*durations.values()))):
        assert 0.93 * inside < duration < 1.07 * outside, (inside, duration, outside)
    assert counted == {"requests": count, "request_errors": len(failed)}


@pytest.mark.parametrize(
    "source",
    [FLASK, WSGI_STREAM, fastapi(MIDDLEWARE), DJANGO_SYNC, DJANGO_ASYNC],
    ids=["flask", "wsgi stream", "fastapi", "django", "django async"],
)
def test_of_a_thousand_requests_exactly_the_slow_and_failed_ones_keep_timestamps(run_target, source):
    if "django" in source:
        pytest.importorskip("django")
    target = run_target(f"COUNT, IS_UNSAMPLED = 1000, False\n{COMMON}{source}", timeout=180)
    check(target, 1000)


@pytest.mark.parametrize("sampler", ["ALWAYS_ON", "ALWAYS_OFF"])
@pytest.mark.parametrize("app", [MIDDLEWARE + OTEL, OTEL + OUTERMOST], ids=["inside", "outside"])
@pytest.mark.parametrize("headers", ["{}", TRACEPARENT], ids=["own trace", "of a caller"])
def test_with_spans_too_each_request_is_reported_once(run_target, sampler, app, headers):
    source = fastapi(app.replace("SAMPLER", sampler), headers)
    target = run_target(f"COUNT, IS_UNSAMPLED = 200, {sampler == 'ALWAYS_OFF'}\n{COMMON}{source}", timeout=180)
    check(target, 200)


CALLERS = """
import time
import spanprof.wsgi
from werkzeug.test import Client

def app(environ, start_response):
    number = int(environ["PATH_INFO"].rsplit("/", 1)[1])
    time.sleep(0.15 if number == 7 else 0.001)
    start_response("500 Failed" if number == 9 else "200 OK", [])
    return [b""]

app = spanprof.wsgi.Middleware(app)
spanprof.start(heap=False, upload_interval=30)
for number in range(1, 31):
    Client(app).get(f"/carts/{number}", headers={"traceparent": f"00-{5:032x}-{number:016x}-01"})
spanprof.stop()
"""


def test_without_a_tracing_sdk_slow_and_failed_requests_have_a_span_of_their_own_in_the_trace_of_their_caller(run_target):
    samples = run_target(CALLERS).profiles("requests").samples
    assert sum(sample.values["requests"] for sample in samples) == 30
    assert {sample.labels["trace_id"] for sample in samples if "trace_id" in sample.labels} == {f"{5:032x}"}
    by_span = {sample.labels["span_id"]: sample for sample in samples if "span_id" in sample.labels}
    # The ten slowest, the failed one, and those with samples.
    assert len(by_span) >= 11
    assert sum(0.148 < int(sample.labels["duration"]) / 1e9 < 0.3 for sample in by_span.values()) == 1
    assert sum(sample.values["request_errors"] for sample in by_span.values()) == 1
