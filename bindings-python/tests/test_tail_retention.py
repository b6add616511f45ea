"""Tail-based retention: which requests keep timestamps and span is compared with the durations that their spans report."""

from __future__ import annotations

REQUESTS = """
import time
import spanprof
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from spanprof.otel import SpanProcessor

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(100))

class Durations(SpanProcessor):
    def on_end(self, span):
        super().on_end(span)
        if span.parent is None:
            print(trace.format_span_id(span.context.span_id), span.start_time, span.end_time)

provider = TracerProvider()
provider.add_span_processor(Durations())
tracer = provider.get_tracer("t")
"""


def test_of_a_thousand_requests_every_slow_one_keeps_timestamps_and_span_and_no_other(run_target):
    target = run_target(
        REQUESTS
        + """
spanprof.start(sample_rate=500, heap=False, retention="tail", tail_duration=0.05, upload_interval=1)
for number in range(1000):
    with tracer.start_as_current_span("GET /cart") as span:
        with tracer.start_as_current_span("child"):
            burn(0.06 if number % 50 == 0 else 0.001)
spanprof.flush()
stats = spanprof.stats()
spanprof.stop()
assert stats["tail.requests"] == 1000 and stats["tail.undecided"] == 0, stats
assert stats["tail.held_bytes"] == 0, stats
"""
    )
    ended = [line.split() for line in target.stdout.splitlines()]
    spans = {span: (int(start), int(end)) for span, start, end in ended}
    slow = {span for span, (start, end) in spans.items() if end - start >= 50_000_000}
    # On a busy machine a request of 1 ms can be slow by waiting for a processor: it is kept, with or without a sample.
    burning = {span for span, _, _ in ended[::50]}
    assert len(spans) == 1000 and len(burning) == 20
    profiles = target.profiles()
    samples = [sample for file in profiles.files for sample in file.samples]
    timed = [sample for sample in samples if "end_timestamp_ns" in sample.labels]
    assert all(("span_id" in sample.labels) == ("end_timestamp_ns" in sample.labels) for sample in samples)
    # The sampled span is the child; its time lies within exactly one request.
    kept = set()
    for sample in timed:
        time_ns = sample.labels["end_timestamp_ns"]
        # The monotonic clock and the clock of the spans differ slightly.
        (request,) = {s for s, (start, end) in spans.items() if start - 2e5 <= time_ns <= end + 2e5 and s in slow}
        kept.add(request)
    assert burning <= kept <= slow
    # A slow request uses at least 60 ms: 30 samples on average.
    assert len(timed) >= 10 * 20
    assert sum(sample.nanoseconds for sample in samples) >= 20 * 0.06e9


def test_a_request_that_fails_keeps_its_samples(run_target):
    target = run_target(
        REQUESTS
        + """
spanprof.start(sample_rate=500, heap=False, retention="tail", tail_duration="none")
for number in range(6):
    try:
        with tracer.start_as_current_span("GET /cart") as span:
            burn(0.05)
            if number == 3:
                failed = trace.format_span_id(span.get_span_context().span_id)
                raise ValueError("on purpose")
    except ValueError:
        pass
spanprof.flush()
assert spanprof.stats()["tail.kept_error"] == 1
spanprof.stop()
print(failed)
"""
    )
    *_, failed = target.stdout.split()
    samples = [sample for file in target.profiles().files for sample in file.samples]
    assert {sample.labels["span_id"] for sample in samples if "span_id" in sample.labels} == {failed}
