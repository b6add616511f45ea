"""CPU of the same work with and without each profiler, in interleaved pairs; prints Markdown.

Whole ratio: CPU time of the process (and of py-spy beside it) divided by that of the bare process of the same round. Own CPU:
the profiler's threads by schedstat, and for spanprof its handler. Other costs inside the work's thread appear only in the
ratio.
"""

import json
import os
import random
import resource
import subprocess
import sys

import measuring

DEPTHS = (20, 100)
CASES = [
    ("spanprof", 100),
    ("spanprof", 1000),
    ("pyroscope", 100),
    ("pyroscope", 1000),
    ("ddtrace", 100),
    ("py-spy", 100),
    ("py-spy", 1000),
]


def run(given, name, rate, depth, rounds, address):
    python = given.pythons.get(name, given.pythons["spanprof"])
    if name != "py-spy":
        return measuring.child(python, "overhead_run.py", name, rate, depth, rounds, address)
    words = [python, os.path.join(measuring.HERE, "overhead_run.py"), name, rate, depth, rounds, address]
    worker = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = worker.stdout.readline().strip()
    sampler = os.path.join(os.path.dirname(python), "py-spy")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sampler, "record", "--pid", pid, "--rate", str(rate), "--format", "raw", "--output", os.devnull, "--duration", "600"]
    outside = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # It reports when it is attached.
    said = ""
    while "Sampling process" not in said:
        line = outside.stdout.readline()
        if not line:
            sys.exit(f"py-spy cannot attach: {said}")
        said += line
    worker.stdin.write("go\n")
    worker.stdin.flush()
    result = json.loads(worker.stdout.read().splitlines()[-1])
    outside.communicate(timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result["own"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    worker.wait(timeout=60)
    result["cpu"] += result["own"]
    return result


def main():
    given = measuring.arguments()
    pairs, rounds = (2, 60) if given.short else (10, 400)
    rows = []
    with measuring.swallowing_receiver() as address:
        for depth in DEPTHS:
            ratios = {case: [] for case in CASES}
            own = {case: [] for case in CASES}
            for _ in range(pairs):
                bare = run(given, "none", 0, depth, rounds, address)
                for case in random.sample(CASES, len(CASES)):
                    result = run(given, *case, depth, rounds, address)
                    ratios[case].append(result["cpu"] / bare["cpu"])
                    own[case].append(100 * (result["own"] + result["handler"]) / result["wall"])
            for case in CASES:
                middle, low, high = measuring.median_interval(ratios[case])
                name, rate = case
                rows.append([name, rate, depth, f"{measuring.median_interval(own[case])[0]:.2f}", f"{middle:.3f}", f"{low:.3f} … {high:.3f}"])
    print(f"{pairs} interleaved pairs; one busy thread; ddtrace has its own rate.\n")
    measuring.table(["profiler", "Hz", "depth", "own CPU, % of a core", "whole ratio, median", "95 % interval"], rows)


if __name__ == "__main__":
    main()
