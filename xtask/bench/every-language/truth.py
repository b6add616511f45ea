"""Profiles of programs of known truth, each in several runs; prints Markdown.

A program gets the number of the run and a folder, and prints JSON: `checks`, a list of objects with
    name       the row
    type       the profile type, in the file or folder `file` of the folder
    function   the part of the profile: all stacks through a function of this name
    truth      the true value; with `error`, the standard error of its estimate, or
    sizes      bytes of an object, and number of such objects, in pairs; with `interval`, the mean bytes between two samples
"""

import json
import math
import os
import re
import statistics
import subprocess

import measuring


def estimated(command, folder, check):
    """The value of a check in the profile."""
    words = [command, "top", os.path.join(folder, check.get("file", "")), "--limit", "0", "--json"]
    if "type" in check:
        words += ["--type", check["type"]]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        # The profile has no such type.
        return math.nan
    rows = json.loads(done.stdout)["rows"]
    # The languages differ in what precedes the name.
    name = re.compile(rf"(^|[./:$>]){re.escape(check['function'])}($|[(_])")
    return max((row["cum"] for row in rows if name.search(row["function"])), default=0)


def true_value(check):
    if "truth" in check:
        return check["truth"]
    return sum(size * count for size, count in check["sizes"])


def standard_error(check):
    """Of a sample by bytes: an object of S bytes is sampled with probability p = 1 - e^(-S/R) and stands for S/p bytes."""
    if "sizes" not in check:
        return check.get("error", math.nan)
    variance = 0.0
    for size, count in check["sizes"]:
        missed = math.exp(-size / check["interval"])
        variance += count * size * size * missed / (1 - missed)
    # At least 0.1 %: of objects far larger than the interval, none is missed.
    return max(math.sqrt(variance), true_value(check) / 1000)


def main():
    given = measuring.arguments()
    runs = 2 if given.short else 10
    found = {}
    for run in range(runs):
        for name, command in given.commands.items():
            folder = os.path.join(given.folder, f"{len(found)}-{run}-{re.sub(r'[^a-z0-9]+', '-', name.lower())}")
            os.makedirs(folder)
            done = subprocess.run([*command, str(run), folder], check=True, stdout=subprocess.PIPE, text=True)
            for check in json.loads(done.stdout.splitlines()[-1])["checks"]:
                of = found.setdefault((name, check["name"]), {"truth": [], "percent": [], "errors": []})
                truth, value, error = true_value(check), estimated(given.command, folder, check), standard_error(check)
                of["truth"].append(truth)
                of["percent"].append(100 * (value / truth - 1))
                of["errors"].append((value - truth) / error)
    print(f"{runs} runs of each, in turn. Standard errors are those of the number of samples in the same run.\n")
    rows = []
    for (name, check), of in found.items():
        has_errors = not any(map(math.isnan, of["errors"]))
        worst = max(map(abs, of["errors"]))
        rows.append([
            name,
            check,
            f"{statistics.mean(of['truth']):.4g}",
            f"{statistics.mean(of['percent']):+.2f}",
            f"{min(of['percent']):+.2f} … {max(of['percent']):+.2f}",
            f"{worst:.1f}" if has_errors else "–",
            f"{sum(abs(error) <= 3 for error in of['errors'])} of {len(of['errors'])}" if has_errors else "–",
        ])
    measuring.table(
        ["profiler", "part", "truth (bytes or ns)", "mean error, %", "range, %", "worst, standard errors", "runs within 3"], rows
    )


if __name__ == "__main__":
    main()
