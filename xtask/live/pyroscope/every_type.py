"""Takes every profile that Python has, and sends the same windows to a receiver and to a directory."""

import gc
import sys
import threading
import time

import spanprof
from program import SPAN_ID, TRACE_ID, burn


class Node:
    """A member of a cycle, which only the garbage collector frees."""

    def __init__(self):
        self.itself = self


def keep_memory():
    return [bytes(1000) for _ in range(20_000)]


def free_memory():
    for _ in range(20_000):
        bytes(1000)


def collect_garbage():
    nodes = [Node() for _ in range(10_000)]
    del nodes
    gc.collect()


def wait_for_lock():
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(0.2, lock.release).start()
    with lock:
        pass


def main():
    endpoint, directory, service, destination = sys.argv[1:]
    spanprof.start(
        service_name=service,
        profiles="all",
        heap_interval=16384,
        upload_interval=60,
        destinations=[{"type": destination, "endpoint": endpoint}, {"type": "file", "directory": directory}],
    )
    # A label name that the push protocol must change for Pyroscope 1.x, and a span.
    labels = {"endpoint": "/cart"}
    if destination == "pyroscope":
        labels.update({"user-tier": "gold", "trace_id": TRACE_ID, "span_id": SPAN_ID})
    with spanprof.tag_wrapper(labels):
        kept = keep_memory()
        free_memory()
        collect_garbage()
        wait_for_lock()
        time.sleep(0.3)
        burn(0.3)
    if not spanprof.flush(20):
        sys.exit(f"not delivered: {spanprof.stats()}")
    del kept
    spanprof.stop()


if __name__ == "__main__":
    main()
