"""A program that leaks: each request adds to a cache that nothing empties. Sessions expire after two windows. Writes the
heap of eight windows into a directory.

    pip install spanprof
    python leak.py profiles
    spanprof top profiles --type inuse_space --label age=old
"""

import sys
from collections import deque

import spanprof

CACHE = {}
SESSIONS = deque(maxlen=1_000)


def remember(request):
    CACHE[request] = bytearray(20_000)


def open_session():
    SESSIONS.append(bytearray(40_000))


def render(request):
    return "".join(f"<li>{request} {item}</li>" for item in range(1_000))


def serve(requests):
    for request in requests:
        with spanprof.tag_wrapper({"endpoint": "/cart"}):
            remember(request)
            open_session()
            render(request)


def main(directory):
    spanprof.start(service_name="checkout-leak", heap=True, destinations=[{"type": "file", "directory": directory}])
    for window in range(8):
        if window > 0:
            # Ends a window. In a service, one ends every 10 seconds.
            spanprof.flush()
        serve(range(500 * window, 500 * window + 500))
    spanprof.stop()


if __name__ == "__main__":
    main(sys.argv[1])
