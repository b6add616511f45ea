"""The work that is profiled: three functions of known cost below a stack of chosen depth. The truth is measured in the
same process, on the thread's own CPU clock."""

import time


def half(units):
    total = 0
    for number in range(units * 5):
        total += number * number
    return total


def third(units):
    total = 0
    for number in range(units * 3):
        total += number * number
    return total


def fifth(units):
    total = 0
    for number in range(units * 2):
        total += number * number
    return total


PARTS = (half, third, fifth)


def below(depth, work, units):
    """Calls the work `depth` frames down."""
    if depth <= 1:
        return work(units)
    return below(depth - 1, work, units)


def mix(depth, cpu_seconds, units=10_000):
    """Burns about so much CPU time of this thread in the shares 50/30/20; returns what each part really burnt."""
    burnt = {work.__name__: 0.0 for work in PARTS}
    clock = time.thread_time
    end = clock() + cpu_seconds
    while clock() < end:
        for work in PARTS:
            began = clock()
            below(depth, work, units)
            burnt[work.__name__] += clock() - began
    return burnt


def fixed(depth, rounds, units=10_000):
    """The same work for every profiler: so many rounds, whatever they take."""
    for _ in range(rounds):
        for work in PARTS:
            below(depth, work, units)
