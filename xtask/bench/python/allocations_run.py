"""Allocates 60, 30 and 10 % of 3.2 GB in three functions, objects of 40 bytes to 4 MiB, and leaks 80 MB, under one profiler.
Prints the true values as JSON, for ../every-language.

    allocations_run.py PROFILER SEED FOLDER
"""

import json
import random
import sys
from collections import Counter

import peers

#: Bytes of each function in a round, and the range of its sizes; `bytes` adds a header.
HEADER = sys.getsizeof(b"")
ROUND = 64_000_000
ROUNDS = 50
#: Rounds with different sizes.
DIFFERENT = 10
FUNCTIONS = {"sixty": (0.6, 40, 512), "thirty": (0.3, 1_000, 100_000), "tenth": (0.1, 200_000, 4 << 20)}
LEAK = 80_000_000

kept = []


def sixty(sizes):
    for size in sizes:
        bytes(size)


def thirty(sizes):
    for size in sizes:
        bytes(size)


def tenth(sizes):
    for size in sizes:
        bytes(size)


def leak(sizes):
    for size in sizes:
        kept.append(bytes(size))


def drawn(random_numbers, total, low, high):
    """Sizes with uniform logarithms, of this total or a little more."""
    sizes = []
    while total > 0:
        size = int(low * (high / low) ** random_numbers.random())
        sizes.append(size - HEADER)
        total -= size
    return sizes


def start(name, folder):
    """Starts a profiler by its name, `spanprof, INTERVAL`; returns the interval of its samples and its stop function."""
    if name.startswith("spanprof"):
        import spanprof

        interval = int(name.split(", ")[1])
        settings = {"cpu": False, "gc": False, "upload_interval": 3600, "destinations": [{"type": "file", "directory": folder}]}
        spanprof.start(heap_interval=interval, **settings)
        return interval, spanprof.stop
    return 512 << 10, peers.ddtrace(folder, DD_PROFILING_MEMORY_ENABLED="true", DD_PROFILING_HEAP_SAMPLE_SIZE=str(512 << 10))


def main():
    name, seed, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    random_numbers = random.Random(seed)
    sizes = {}
    for function, (share, low, high) in FUNCTIONS.items():
        every = drawn(random_numbers, DIFFERENT * ROUND * share, low, high)
        sizes[function] = [every[part::DIFFERENT] for part in range(DIFFERENT)]
    leaked = drawn(random_numbers, LEAK / ROUNDS, 1_000, 64_000)
    interval, stop = start(name, folder)
    for number in range(ROUNDS):
        for function in (sixty, thirty, tenth):
            function(sizes[function.__name__][number % DIFFERENT])
        leak(leaked)
    stop()
    checks = []
    for function, drawn_sizes in [*sizes.items(), ("leak", [leaked] * DIFFERENT)]:
        counts = Counter(size + HEADER for part in drawn_sizes for size in part)
        profile_type = "inuse_space" if function == "leak" else "alloc_space"
        counted = [(size, count * ROUNDS // DIFFERENT) for size, count in counts.items()]
        check = {"name": f"{function}, {profile_type}", "type": profile_type, "function": function}
        checks.append({**check, "sizes": counted, "interval": interval})
    if name == "ddtrace":
        peer_types = {"inuse_space": "heap-space", "alloc_space": "alloc-space"}
        checks = [{**check, "type": peer_types[check["type"]], "file": peers.FILE} for check in checks]
    print(json.dumps({"checks": checks}))


if __name__ == "__main__":
    main()
