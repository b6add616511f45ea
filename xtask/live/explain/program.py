"""A service with one known problem, or none. Writes its profiles into a directory.

    python program.py DIRECTORY PROBLEM
"""

import asyncio
import gc
import json
import sys
import threading
import time
from collections import deque

import spanprof

SECONDS = 6
CART = {"items": [{"sku": f"A-{number}", "price": number} for number in range(40)]}
CACHE = {}
SESSIONS = deque(maxlen=400)
LOCK = threading.Lock()


# The parts of a request use about as much CPU time each.
def read_cart():
    total = 0
    for number in range(50_000):
        total += number * 2
    return total


def check_stock():
    total = 0
    for number in range(50_000):
        total += number * 3
    return total


def render_page():
    total = 0
    for number in range(50_000):
        total += number * 4
    return total


def write_log():
    total = 0
    for number in range(50_000):
        total += number * 5
    return total


def load_user():
    total = 0
    for number in range(50_000):
        total += number * 11
    return total


def find_offers():
    total = 0
    for number in range(50_000):
        total += number * 12
    return total


def sort_rows():
    total = 0
    for number in range(50_000):
        total += number * 13
    return total


def add_tax():
    total = 0
    for number in range(50_000):
        total += number * 6
    return total


def apply_discounts(rounds):
    total = 0
    for number in range(rounds):
        total += number * 7
    return total


def serve():
    for part in (read_cart, check_stock, render_page, write_log, load_user, find_offers, sort_rows, add_tax):
        part()


def price_cart():
    for _ in range(500):
        json.loads(json.dumps(CART))


def build_graph():
    nodes = [{"next": None} for _ in range(20_000)]
    for one, other in zip(nodes, nodes[1:]):
        one["next"], other["previous"] = other, one


def reserve():
    with LOCK:
        time.sleep(0.005)


def call_bank():
    time.sleep(0.1)


def remember(request):
    CACHE[request] = bytearray(20_000)


def repeat(work, seconds=SECONDS):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        work()


def in_threads(count, work):
    threads = [threading.Thread(target=repeat, args=(work,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def healthy():
    kept = deque(maxlen=200)

    def request():
        with spanprof.tag_wrapper({"endpoint": "/cart"}):
            serve()
            kept.append(bytearray(20_000))
            time.sleep(0.002)

    in_threads(2, request)


def hot():
    def request():
        serve()
        price_cart()

    repeat(request)


def collects():
    def request():
        read_cart()
        build_graph()
        gc.collect()

    repeat(request)


def convoy():
    in_threads(6, lambda: (reserve(), read_cart()))


def blocks():
    async def fetch_price():
        time.sleep(0.05)

    async def main():
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await fetch_price()
            await asyncio.sleep(0.05)

    asyncio.run(main())


def waits():
    def request():
        with spanprof.tag_wrapper({"endpoint": "/pay"}):
            call_bank()
            read_cart()

    in_threads(2, request)


def leaks():
    for window in range(10):
        if window > 0:
            spanprof.flush()
        for request in range(300 * window, 300 * window + 300):
            remember(request)
            SESSIONS.append(bytearray(40_000))
        for _ in range(10):
            serve()


def slower():
    rounds = {"slower-1.0": 20_000, "slower-2.0": 200_000}[sys.argv[2]]
    repeat(lambda: (serve(), apply_discounts(rounds)))


PROBLEMS = {
    "healthy": healthy, "hot": hot, "collects": collects, "convoy": convoy, "blocks": blocks, "waits": waits,
    "leaks": leaks, "slower-1.0": slower, "slower-2.0": slower,
}

spanprof.start(
    service_name="live-explain", destinations=[{"type": "file", "directory": sys.argv[1]}], upload_interval=60,
    lock=True, off_cpu=True, heap=True,
)
# Locks are measured if they are created after the start.
LOCK = threading.Lock()
PROBLEMS[sys.argv[2]]()
spanprof.stop()
