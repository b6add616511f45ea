"""A small shop: a FastAPI service under the OpenTelemetry SDK, profiled by spanprof.

The profiler needs the import, `start()`, and the middleware for routes. OpenTelemetry's FastAPI instrumentation traces the requests, and every
sample is linked to the active span. OTEL_* variables select the destination.
"""

import asyncio
import hashlib
import json
import random

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import TracerProvider

import spanprof
import spanprof.asgi

spanprof.start()

trace.set_tracer_provider(TracerProvider())
app = FastAPI()
# Samples of a request carry its method and its route.
app.add_middleware(spanprof.asgi.Middleware)
FastAPIInstrumentor.instrument_app(app, excluded_urls="health,profiler")

CATALOGUE = {number: {"name": f"article {number}", "price": number * 17 % 90 + 1} for number in range(400)}


@app.get("/cart/{size}")
async def cart(size: int):
    """Runs on the event loop; the label is the kind of customer."""
    with spanprof.tag_wrapper({"customer": "returning" if size > 10 else "new"}):
        return {"total": price_cart(size)}


@app.get("/search")
async def search(words: str):
    """Several tasks at once: each keeps the request's span."""
    halves = await asyncio.gather(score(words, 0), score(words, 200))
    return {"best": max(halves)}


@app.get("/report")
def report(rows: int = 1000):
    """Not async: Starlette runs it on a thread of its pool, and the span follows."""
    return {"digest": render_report(rows)}


@app.get("/health")
async def health():
    return {"status": "ok"}


@app.get("/profiler")
async def profiler():
    """Statistics of the profiler."""
    return spanprof.stats()


def price_cart(size):
    total = 0
    for _ in range(size * 20):
        article = random.choice(range(len(CATALOGUE)))
        total += CATALOGUE[article]["price"]
        json.dumps(CATALOGUE[article])
    return total


async def score(words, first):
    best = 0
    for number in range(first, first + 200):
        best = max(best, similarity(words, CATALOGUE[number]["name"]))
        if number % 50 == 0:
            await asyncio.sleep(0)
    return best


def similarity(left, right):
    return sum(left.count(letter) * right.count(letter) for letter in set(left + right))


def render_report(rows):
    digest = hashlib.sha256()
    for row in range(rows):
        digest.update(json.dumps({"row": row, "squares": [row * number for number in range(20)]}).encode())
    return digest.hexdigest()
