"""Uses CPU time inside and outside a span, waits, keeps memory, and sends its profiles to a directory or a receiver."""

import gc
import sys
import time

import spanprof


def burn(cpu_seconds):
    began = time.thread_time()
    while time.thread_time() - began < cpu_seconds:
        sum(range(500))


def burn_with_span():
    burn(0.8)


def burn_alone():
    burn(0.4)


def main():
    place, service = sys.argv[1:]
    receiver, directory = {"type": "otlp", "endpoint": place}, {"type": "file", "directory": place}
    spanprof.start(
        service_name=service,
        destinations=[receiver if place.startswith("http") else directory],
        upload_interval=60,
        wall=True,
        heap=True,
        heap_interval=16384,
    )
    tags = {"endpoint": "/cart", "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
    with spanprof.tag_wrapper(tags):
        burn_with_span()
    burn_alone()
    kept = [bytes(1000) for _ in range(20_000)]
    gc.collect()
    time.sleep(0.3)
    if not spanprof.flush(10):
        sys.exit(f"not delivered: {spanprof.stats()}")
    del kept
    spanprof.stop()


if __name__ == "__main__":
    main()
