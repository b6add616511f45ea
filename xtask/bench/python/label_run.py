"""Nanoseconds to enter and leave a label scope, and one that does nothing; prints JSON, for ../every-language.

    label_run.py none|prepared|"3 keys" ADDRESS SECONDS
"""

import contextlib
import json
import sys
import time

import spanprof

LABELS = {"endpoint": "/cart", "tenant": "a", "method": "GET"}


def same(scope):
    def block(rounds):
        for _ in range(rounds):
            with scope:
                pass

    return block


def fresh(rounds):
    for _ in range(rounds):
        with spanprof.tag_wrapper({"endpoint": "/cart", "tenant": "a", "method": "GET"}):
            pass


def main():
    name, rounds = sys.argv[1], 20_000 * int(sys.argv[3])
    spanprof.start(service_name="tags", destinations=[])
    block = {"none": same(contextlib.nullcontext()), "prepared": same(spanprof.tag_wrapper(LABELS)), "3 keys": fresh}[name]
    best = float("inf")
    # The fastest of several blocks: other load of the machine only adds time.
    for _ in range(7):
        began = time.perf_counter_ns()
        block(rounds)
        best = min(best, time.perf_counter_ns() - began)
    spanprof.stop()
    print(json.dumps({"ns": best / rounds}))


if __name__ == "__main__":
    main()
