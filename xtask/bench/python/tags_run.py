"""Nanoseconds to enter and leave a label scope, beside a scope that does nothing; prints JSON."""

import contextlib
import json
import sys
import time

import spanprof


def per_round_ns(rounds, body):
    """The fastest of several blocks: other load of the machine only adds time."""
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter_ns()
        body(rounds)
        best = min(best, time.perf_counter_ns() - began)
    return best / rounds


def bare(rounds):
    scope = contextlib.nullcontext()
    for _ in range(rounds):
        with scope:
            pass


def prebuilt(rounds):
    scope = spanprof.tag_wrapper({"endpoint": "/cart", "tenant": "a", "method": "GET"})
    for _ in range(rounds):
        with scope:
            pass


def fresh(rounds):
    for _ in range(rounds):
        with spanprof.tag_wrapper({"endpoint": "/cart", "tenant": "a", "method": "GET"}):
            pass


def main():
    rounds = int(sys.argv[1])
    spanprof.start(service_name="tags", destinations=[])
    result = {body.__name__: per_round_ns(rounds, body) for body in (bare, prebuilt, fresh)}
    spanprof.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
