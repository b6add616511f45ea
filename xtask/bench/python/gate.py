"""False alarms and misses of `spanprof diff --fail-over` on a real program; prints Markdown.

Runs the program of gate_run.py 100 times as it is (A) and with 5 % more work in one function (B), alternating. A side of a comparison has the
windows of several runs, drawn from these at random: pairs share runs, but the two sides of one pair do not.
"""

import json
import os
import random
import subprocess
import tempfile

import measuring

#: At 4,000 Hz, 3,200 samples of function_00 in a run of 5 s: ten runs have 30,000.
CPU_SECONDS, RATE, GROWTH = 5, 4000, 1.05
PAIRS = 100


def collect(python, folder, count, cpu_seconds):
    """Profiles runs of both programs; returns their folders by program."""
    runs = {"a": [], "b": []}
    for number in range(count):
        for program, factor in (("a", 1), ("b", GROWTH)):
            target = os.path.join(folder, f"{program}-{number:03}")
            os.makedirs(target)
            script = os.path.join(measuring.HERE, "gate_run.py")
            subprocess.run([python, script, target, str(cpu_seconds), str(RATE), str(factor)], check=True)
            runs[program].append(target)
    return runs


def compare(command, baseline, comparison):
    """The report of `spanprof diff` on two sets of runs."""
    with tempfile.TemporaryDirectory() as both:
        sides = []
        for side, runs in (("baseline", baseline), ("comparison", comparison)):
            sides.append(os.path.join(both, side))
            os.mkdir(sides[-1])
            for run in runs:
                for name in os.listdir(run):
                    os.symlink(os.path.join(run, name), os.path.join(sides[-1], f"{os.path.basename(run)}-{name}"))
        words = [command, "diff", *sides, "--fail-over", "0", "--json", "--limit", "0", "--all"]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == int(bool(report["regressions"])), done
    return report


def pairs(command, baseline, comparison, size, count):
    """Comparisons of random sides of `size` runs each; of one program if both lists are the same."""
    for _ in range(count):
        if baseline is comparison:
            drawn = random.sample(baseline, 2 * size)
            yield compare(command, drawn[:size], drawn[size:])
        else:
            yield compare(command, random.sample(baseline, size), random.sample(comparison, size))


def measure(command, runs, sizes, regression_size, count=PAIRS):
    """Prints the two tables."""
    rows = []
    for size in sizes:
        reports = list(pairs(command, runs["a"], runs["a"], size, count))
        alarms = sum(bool(report["regressions"]) for report in reports)
        changes = sum(any(row["significant"] for row in report["rows"]) for report in reports)
        first = reports[0]
        rows.append([size, f"{first['samples'][0]:,.0f}", first["tested"], f"{alarms} of {count}", f"{changes} of {count}"])
    print("The same program on both sides.\n")
    head = ["runs per side", "samples", "tested functions", "gate fails at `--fail-over 0`", "any significant change"]
    measuring.table(head, rows)
    found, others, growths, samples = 0, 0, [], 0
    for report in pairs(command, runs["a"], runs["b"], regression_size, count):
        regressed = {row["function"] for row in report["regressions"]}
        found += "function_00" in regressed
        others += len(regressed - {"function_00"})
        row = next(row for row in report["rows"] if row["function"] == "function_00")
        growths.append(row["growth"]["estimate"])
        samples = report["samples"][0] * row["baseline"]["flat"] / report["baseline_total"]
    low, middle, high = (sorted(growths)[int(len(growths) * part)] for part in (0.05, 0.5, 0.95))
    print(f"5 % more work in `function_00`, {regression_size} runs per side, {samples:,.0f} samples of it in the last.\n")
    measuring.table(
        ["found by the gate", "growth of its share: median (5 % to 95 %)", "other functions found"],
        [[f"{found} of {count}", f"{middle:.1%} ({low:.1%} to {high:.1%})", others]],
    )


def main():
    given = measuring.arguments()
    random.seed(1)
    if given.short:
        measure(given.command, collect(given.pythons["spanprof"], given.folder, 4, 1), [1, 2], 2, 5)
    else:
        measure(given.command, collect(given.pythons["spanprof"], given.folder, 100, CPU_SECONDS), [1, 2, 5, 10], 10)


if __name__ == "__main__":
    main()
