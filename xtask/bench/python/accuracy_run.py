"""Spends CPU time in functions of known shares under spanprof. Prints the true values as JSON, for ../every-language.

    accuracy_run.py "spanprof, MIX RATE DEPTH THREADS" NUMBER FOLDER

MIX is a name of work.MIXES, or cycle-N: a part of 30 % of each N ms of CPU time.
"""

import json
import math
import sys
import threading
import time

import spanprof
import work

CPU_SECONDS = 10


def spend(mix, depth, cpu_seconds, truths):
    began = time.thread_time()
    if mix.startswith("cycle-"):
        parts = work.cycles(depth, int(mix.removeprefix("cycle-")), cpu_seconds)
    else:
        parts = work.mix(work.MIXES[mix], depth, cpu_seconds)
    truths.append({**parts, "spend": time.thread_time() - began})


def main():
    mix, rate, depth, threads = sys.argv[1].removeprefix("spanprof, ").split()
    destination = {"type": "file", "directory": sys.argv[3]}
    spanprof.start(service_name="accuracy", sample_rate=int(rate), heap=False, gc=False, destinations=[destination], upload_interval=3600)
    truths = []
    words = (mix, int(depth), CPU_SECONDS / int(threads), truths)
    others = [threading.Thread(target=spend, args=words) for _ in range(int(threads) - 1)]
    for thread in others:
        thread.start()
    spend(*words)
    for thread in others:
        thread.join()
    spanprof.flush(30)
    samples = spanprof.stats()["samples.cpu"]
    spanprof.stop()
    burnt = {part: 1e9 * sum(truth[part] for truth in truths) for part in truths[0]}
    checks = []
    for part, truth in burnt.items():
        share = truth / burnt["spend"]
        error = max(burnt["spend"] * math.sqrt(share * (1 - share) / samples), truth / 1000)
        checks.append({"name": part, "type": "cpu", "function": part, "truth": truth, "error": error})
    print(json.dumps({"checks": checks}))


if __name__ == "__main__":
    main()
