"""The profiled work: three functions of known cost below a stack of chosen depth. Their true cost is measured in the same
process, by the thread's CPU clock."""

import hashlib
import time
import zlib


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

BLOCK = bytes(range(256)) * 2048


def hashing(units):
    """C code that releases the interpreter lock."""
    for _ in range(units // 2_500):
        hashlib.sha256(BLOCK).digest()


def checking(units):
    """As above, another function."""
    for _ in range(units // 500):
        zlib.crc32(BLOCK)


NATIVE_PARTS = (half, hashing, checking)
MIXES = {"python": PARTS, "native": NATIVE_PARTS}


def below(depth, work, units):
    """Calls the work `depth` frames down."""
    if depth <= 1:
        return work(units)
    return below(depth - 1, work, units)


def mix(parts, depth, cpu_seconds, units=10_000):
    """Uses about so much CPU time of this thread in the parts; returns the measured time of each."""
    burnt = {work.__name__: 0.0 for work in parts}
    clock = time.thread_time
    end = clock() + cpu_seconds
    while clock() < end:
        for work in parts:
            began = clock()
            below(depth, work, units)
            burnt[work.__name__] += clock() - began
    return burnt


def fixed(depth, rounds, units=10_000):
    """The same work for every profiler: a fixed number of rounds."""
    for _ in range(rounds):
        for work in PARTS:
            below(depth, work, units)


def part(until, clock):
    while clock() < until:
        pass


def rest(until, clock):
    while clock() < until:
        pass


def cycles(depth, cycle_ms, cpu_seconds):
    """Spends 30 % of each cycle of CPU time in one function, the rest in another; returns the measured time of each."""
    burnt = {"part": 0.0, "rest": 0.0}
    clock = time.thread_time
    now = clock()
    end = now + cpu_seconds
    while now < end:
        for work, share in ((part, 0.3), (rest, 0.7)):
            began = now
            below(depth, lambda until, work=work: work(until, clock), began + share * cycle_ms / 1000)
            now = clock()
            burnt[work.__name__] += now - began
    return burnt
