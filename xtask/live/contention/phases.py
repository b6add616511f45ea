"""Six phases of equal CPU time under a label. Prints `phase NAME NS` with the kernel's CPU time of the thread in each (schedstat),
then `stats JSON`. The settings are environment variables."""

import json
import time

import spanprof


def ran_ns():
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[0])


def burn(ns):
    end, total = time.thread_time_ns() + ns, 0
    while time.thread_time_ns() < end:
        for number in range(2_000):
            total += number & 7
    return total


spanprof.start()
for number in range(6):
    before = ran_ns()
    with spanprof.tag_wrapper({"phase": f"p{number}"}):
        burn(250_000_000)
    print(f"phase p{number} {ran_ns() - before}", flush=True)
    time.sleep(0.02)
print("stats", json.dumps(spanprof.stats()), flush=True)
spanprof.stop()
