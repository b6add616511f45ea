"""Shares and totals against thread CPU clocks, at four rates, two depths, with 1 and 16 threads; prints Markdown."""

import json
import math
import os
import subprocess

import measuring

RATES_HZ = (19, 100, 250, 1000)
DEPTHS = (20, 100)
THREADS = (1, 16)
#: Samples aimed at in a run, within the CPU seconds allowed for it.
SAMPLES = 5000
LONGEST_CPU_SECONDS = 60


def read(command, folder):
    """CPU nanoseconds per function, callees included, and of all samples, from the files the run left."""
    words = [command, "top", folder, "--type", "cpu", "--limit", "0", "--json"]
    table = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {row["function"]: row["cum"] for row in table["rows"]}, table["total"]


def run(given, rate, depth, threads, number):
    folder = os.path.join(given.folder, f"{rate}-{depth}-{threads}-{number}")
    cpu_seconds = 2.0 if given.short else min(SAMPLES / rate, LONGEST_CPU_SECONDS)
    truth = measuring.child(given.pythons["spanprof"], "accuracy_run.py", rate, depth, threads, cpu_seconds, folder)
    seen, total = read(given.command, folder)
    burnt = sum(truth["burnt"].values())
    seen_in_mix = sum(seen.get(part, 0) for part in truth["burnt"])
    errors = {part: 100 * (seen.get(part, 0) / seen_in_mix - cpu / burnt) for part, cpu in truth["burnt"].items()}
    bound = 100 * 3 * math.sqrt(0.25 / max(truth["samples"], 1))
    return {
        "clock": truth["clock"],
        "errors": errors,
        "bound": bound,
        "total": 100 * (total / 1e9 / truth["process"] - 1),
        "rate": truth["samples"] / truth["process"],
    }


def main():
    given = measuring.arguments()
    repeats = 1 if given.short else 5
    rows = []
    for rate in RATES_HZ:
        for depth in DEPTHS:
            for threads in THREADS:
                runs = [run(given, rate, depth, threads, number) for number in range(repeats)]
                worst = max(abs(error) for one in runs for error in one["errors"].values())
                bias = max(abs(sum(one["errors"][part] for one in runs) / repeats) for part in runs[0]["errors"])
                within = sum(all(abs(error) <= one["bound"] for error in one["errors"].values()) for one in runs)
                totals = [one["total"] for one in runs]
                rows.append(
                    [
                        rate,
                        depth,
                        threads,
                        runs[0]["clock"],
                        f"{sum(one['rate'] for one in runs) / repeats:.0f}",
                        f"{worst:.2f}",
                        f"{runs[0]['bound']:.2f}",
                        f"{within}/{repeats}",
                        f"{bias:.2f}",
                        f"{min(totals):+.2f} … {max(totals):+.2f}",
                    ]
                )
    print(f"50/30/20 mix; truth by thread CPU clocks in the same process; {repeats} runs per row.\n")
    measuring.table(
        [
            "Hz",
            "depth",
            "threads",
            "clock",
            "samples per CPU second",
            "worst share error, points",
            "3 standard errors",
            "runs within",
            "mean bias, points",
            "total against process CPU, %",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
