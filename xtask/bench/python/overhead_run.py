"""One run of the cost benchmark: a fixed amount of work under one profiler; prints its cost as JSON.

    overhead_run.py PROFILER RATE DEPTH ROUNDS ADDRESS
"""

import json
import os
import sys
import time

import profilers
import work


def own_threads_seconds(ours):
    """CPU time of every thread of this process, the work's excluded."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        if int(thread) not in ours:
            with open(f"/proc/self/task/{thread}/schedstat") as schedstat:
                total += int(schedstat.read().split()[0])
    return total / 1e9


def main():
    name, rate, depth, rounds, address = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    ours = {int(thread) for thread in os.listdir("/proc/self/task")}
    stop = profilers.start(name, rate, address)
    work.fixed(depth, rounds // 10)
    print(os.getpid(), flush=True)
    if name == "py-spy":
        # The driver reports when the external sampler runs.
        sys.stdin.readline()
    own_before = own_threads_seconds(ours)
    cpu, wall = time.process_time(), time.monotonic()
    work.fixed(depth, rounds)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    own = own_threads_seconds(ours) - own_before
    stats = stop()
    # The handler runs on the work's thread: its time is counted separately, over warm-up and work.
    handler = stats.get("clock.handler_ns", 0) / 1e9 * rounds / (rounds + rounds // 10)
    print(json.dumps({"cpu": cpu, "wall": wall, "own": own, "handler": handler}))


if __name__ == "__main__":
    main()
