"""Does fixed work under a fixed label and span, and sends its profile over one transport."""

import sys
import time

import spanprof

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"


def burn(cpu_seconds):
    """Uses this CPU time of the thread; the profile must attribute it to this name."""
    began = time.thread_time()
    total = 0
    while time.thread_time() - began < cpu_seconds:
        total += sum(range(500))
    return total


def main():
    endpoint, protocol, compression, service, *figures = sys.argv[1:]
    if protocol != "grpc":
        endpoint += "/v1development/profiles"
    spanprof.start(
        service_name=service,
        endpoint=endpoint,
        protocol=protocol,
        compression=compression,
        upload_interval=60,
        tags={"region": "eu"},
    )
    with spanprof.tag_wrapper({"endpoint": "/cart", "trace_id": TRACE_ID, "span_id": SPAN_ID}):
        burn(1.0)
    burn(0.5)
    if not spanprof.flush(10):
        sys.exit(f"not delivered: {spanprof.stats()}")
    for path in figures:
        with open(path, "w") as file:
            file.write(str(spanprof.stats()["samples.cpu_ns"]))
    spanprof.stop()


if __name__ == "__main__":
    main()
