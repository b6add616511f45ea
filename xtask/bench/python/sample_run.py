"""A fixed amount of work under one profiler; prints its cost as JSON, for ../every-language.

    sample_run.py "DEPTH frames, PROFILER RATE Hz" ADDRESS SECONDS
"""

import json
import os
import sys
import time

import profilers
import work

#: Rounds of the work in a second.
ROUNDS = 200


def own_threads_seconds(ours):
    """CPU time of every thread of this process, the work's excluded."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        if int(thread) not in ours:
            with open(f"/proc/self/task/{thread}/schedstat") as schedstat:
                total += int(schedstat.read().split()[0])
    return total / 1e9


def main():
    frames, profiler = sys.argv[1].split(" frames, ")
    name, _, rate = profiler.removesuffix(" Hz").partition(" ")
    depth, rounds = int(frames), ROUNDS * int(sys.argv[3])
    ours = {int(thread) for thread in os.listdir("/proc/self/task")}
    stop = profilers.start(name, int(rate or 0), sys.argv[2])
    work.fixed(depth, rounds // 10)
    own_before = own_threads_seconds(ours)
    cpu, wall = time.process_time(), time.monotonic()
    work.fixed(depth, rounds)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    own = own_threads_seconds(ours) - own_before
    stats = stop()
    # The handler runs on the work's thread: its time is counted separately, over warm-up and work. Only py-spy is a process.
    measured = rounds / (rounds + rounds // 10)
    outside = os.times().children_user + os.times().children_system
    own += measured * stats.get("clock.handler_ns", 0) / 1e9 + measured * outside
    print(json.dumps({"CPU of the work, ms": 1000 * (cpu + measured * outside), "of this the profiler's, % of a core": 100 * own / wall}))


if __name__ == "__main__":
    main()
