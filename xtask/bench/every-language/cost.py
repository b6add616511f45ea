"""CPU time of a program that does the same work under each profiler, in rounds; prints Markdown.

The first program is the one without a profiler. A program gets a seed, a folder and `later`, and prints JSON: `cpu`, the CPU
seconds of the process in its work, and `cpu_later` where the profiler costs less later.
"""

import json
import os
import random
import statistics
import subprocess

import programs
from programs import measuring


def main():
    given = programs.arguments()
    rounds = 3 if given.short else 11
    names = list(given.commands)
    results = {name: [] for name in names}
    processors = sorted(os.sched_getaffinity(0))
    for number in range(rounds):
        for name in random.sample(names, len(names)):
            folder = os.path.join(given.folder, f"{number}-{names.index(name)}")
            os.makedirs(folder)
            words = ["taskset", "--cpu-list", str(processors[0]), *given.commands[name], "1", folder, "later"]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"CPU time of the process in the same work, {rounds} rounds: medians, and 95 % intervals of the ratios within a round.\n")
    phases = [phase for phase in ("cpu", "cpu_later") if phase in results[names[0]][0]]
    rows = []
    for name in names:
        row = [name]
        for phase in phases:
            ratios = [100 * (one[phase] / bare[phase] - 1) for one, bare in zip(results[name], results[names[0]])]
            middle, low, high = measuring.median_interval(ratios)
            row += [f"{statistics.median(one[phase] for one in results[name]):.3f}", f"{middle:+.2f} ({low:+.2f} … {high:+.2f})"]
        rows.append(row)
    measuring.table(["profiler", *["CPU, s", "added, %", "CPU later, s", "added later, %"][: 2 * len(phases)]], rows)


if __name__ == "__main__":
    main()
