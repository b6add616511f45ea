"""Six phases of `PHASE_MS` of CPU time, each under a label and in a span whose id is the number of the phase. Prints `phase NUMBER
LEAST MOST`, the kernel's CPU time of the thread (schedstat, ns) within the label and around the span, then `stats JSON`. The settings are environment variables."""

import json
import os
import time

from opentelemetry import trace

import spanprof

PHASE_NS = int(os.environ["PHASE_MS"]) * 1_000_000


def ran_ns():
    # The kernel's figure is of the last tick, or of the last wait.
    time.sleep(0.001)
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[0])


def burn(ns):
    end, total = time.thread_time_ns() + ns, 0
    while time.thread_time_ns() < end:
        for number in range(2_000):
            total += number & 7
    return total


def phase(number, ns):
    """Burns CPU time under the label and in the span of a phase; returns the kernel's CPU time within and around them."""
    began = ran_ns()
    span = trace.NonRecordingSpan(trace.SpanContext(number, number, is_remote=False))
    with trace.use_span(span), spanprof.tag_wrapper({"phase": str(number)}):
        before = ran_ns()
        burn(ns)
        least = ran_ns() - before
    return least, ran_ns() - began


spanprof.start()
# Loads what scopes and spans need, outside of the phases.
phase(99, 1_000_000)
for number in range(1, 7):
    print("phase", number, *phase(number, PHASE_NS), flush=True)
    time.sleep(0.02)
print("stats", json.dumps(spanprof.stats()), flush=True)
spanprof.stop()
