"""CPU time of a program that does the same work under each profiler, in rounds; prints Markdown.

The first program is the one without a profiler. A program gets the number of the round and a folder, and prints JSON: `cpu`, the
CPU seconds of the process in its work.
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
    rounds = 3 if given.short else 15
    names = list(given.commands)
    seconds = {name: [] for name in names}
    processors = sorted(os.sched_getaffinity(0))
    for number in range(rounds):
        for name in random.sample(names, len(names)):
            folder = os.path.join(given.folder, f"{number}-{names.index(name)}")
            os.makedirs(folder)
            words = ["taskset", "--cpu-list", str(processors[0]), *given.commands[name], "1", folder]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
            seconds[name].append(json.loads(done.stdout.splitlines()[-1])["cpu"])
    print(f"CPU time of the process in the same work, {rounds} rounds: medians, and 95 % intervals of the ratios within a round.\n")
    rows = []
    for name in names:
        ratios = [100 * (cpu / bare - 1) for cpu, bare in zip(seconds[name], seconds[names[0]])]
        middle, low, high = measuring.median_interval(ratios)
        rows.append([name, f"{statistics.median(seconds[name]):.3f}", f"{middle:+.2f} ({low:+.2f} … {high:+.2f})"])
    measuring.table(["profiler", "CPU, s", "added, %"], rows)


if __name__ == "__main__":
    main()
