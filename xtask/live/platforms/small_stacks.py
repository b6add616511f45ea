"""Threads with the smallest stacks of Python's own (32 KiB) up to musl's default (128 KiB), which use most of them: no sample may
overrun a stack, and each sample has a stack or its reason."""

import sys
import threading
import time

import spanprof

KIB = 1024
SECONDS = 0.5


def work(until):
    while time.monotonic() < until:
        sum(range(200))


def nested(depth, until):
    # `max` calls back from C: each level takes several frames of the C stack.
    if depth:
        max([0], key=lambda _: nested(depth - 1, until) or 0)
    else:
        work(until)


def deepest(kib):
    """The depth that fits in half of a stack: a level takes less than 1,500 bytes in an interpreter without optimization for size."""
    return kib * KIB // 2 // 1500


assert spanprof.start(service_name="small-stacks", destinations=[], sample_rate=1000, heap=True, lock=True)
for kib in (32, 64, 96, 128):
    threading.stack_size(kib * KIB)
    threads = [threading.Thread(target=nested, args=(deepest(kib), time.monotonic() + SECONDS)) for _ in range(4)]
    before = spanprof.stats()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spanprof.flush(10)
    after = spanprof.stats()
    samples, skipped = (after[name] - before[name] for name in ("samples.cpu", "dropped.stack_too_small"))
    print(f"stacks of {kib} KiB: {samples} samples, {skipped} of them without a walk")
    if not samples:
        sys.exit(f"no sample on stacks of {kib} KiB")
spanprof.stop()
