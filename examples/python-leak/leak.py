"""A program that leaks: each request adds to a cache that nothing empties. Writes two windows of its heap into a directory.

    pip install spanprof
    python leak.py profiles
    spanprof diff profiles/inuse-*.pb.gz --type inuse_space
"""

import sys

import spanprof

CACHE = {}


def remember(request):
    CACHE[request] = bytearray(20_000)


def render(request):
    return "".join(f"<li>{request} {item}</li>" for item in range(1_000))


def serve(requests):
    for request in requests:
        with spanprof.tag_wrapper({"endpoint": "/cart"}):
            remember(request)
            render(request)


def main(directory):
    spanprof.start(service_name="checkout-leak", heap=True, destinations=[{"type": "file", "directory": directory}])
    serve(range(1_000))
    spanprof.flush()
    serve(range(1_000, 4_000))
    spanprof.stop()


if __name__ == "__main__":
    main(sys.argv[1])
