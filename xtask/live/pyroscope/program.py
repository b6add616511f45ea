"""A service of many requests: each has its own trace and span, under one of two routes. Sends one profile."""

import os
import random
import sys
import time

import spanprof

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
SPAN_CPU_SECONDS = 0.3
REQUEST_CPU_SECONDS = 0.004


def burn(cpu_seconds):
    """Uses CPU time of this thread; the profile must attribute it to this name."""
    began = time.thread_time()
    total = 0
    while time.thread_time() - began < cpu_seconds:
        total += sum(range(100))
    return total


def main():
    endpoint, protocol, service, requests, figure = sys.argv[1:]
    extra = os.environ.get("EXTRA_LABEL")
    more = {extra: "gold"} if extra else {}
    spanprof.start(
        service_name=service, endpoint=endpoint, protocol=protocol, sample_rate=250, upload_interval=60
    )
    with spanprof.tag_wrapper({"endpoint": "/cart", "trace_id": TRACE_ID, "span_id": SPAN_ID, **more}):
        burn(SPAN_CPU_SECONDS)
    for number in range(1, int(requests)):
        ids = {"trace_id": f"{random.getrandbits(128) | 1:032x}", "span_id": f"{random.getrandbits(64) | 1:016x}"}
        with spanprof.tag_wrapper({"endpoint": "/cart" if number % 3 else "/pay", **ids, **more}):
            burn(REQUEST_CPU_SECONDS)
    delivered = spanprof.flush(20)
    stats = spanprof.stats()
    spanprof.stop()
    if not delivered:
        # A thread writes the log lines.
        time.sleep(1)
        sys.exit(f"not delivered: {stats['export.0.last_error']}")
    with open(figure, "w") as file:
        file.write(str(stats["samples.cpu_ns"]))


if __name__ == "__main__":
    main()
