"""Checks the profile of program.py in the Collector's file: names, label, static label, span, and the totals of both parts."""

import json
import subprocess
import sys
import time

from program import SPAN_ID, TRACE_ID


def top(*selection):
    """The top table of the written file, by `spanprof top`."""
    command, written, service, _ = sys.argv[1:]
    words = [command, "top", written, "--service", service, "--type", "cpu", "--json", *selection]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def wait_until_written():
    """The Collector responds before its file is complete: a line may be missing or incomplete."""
    until = time.monotonic() + 20
    while True:
        try:
            return top()
        except subprocess.CalledProcessError as failed:
            if time.monotonic() > until:
                sys.exit(f"the Collector wrote nothing that can be read: {failed.stderr.strip()}")
            time.sleep(0.2)


def cpu_seconds_of(table, name):
    rows = [row for row in table["rows"] if row["function"].split(".")[-1] == name]
    return sum(row["cum"] for row in rows) / 1e9


def main():
    whole = cpu_seconds_of(wait_until_written(), "burn")
    labelled = cpu_seconds_of(top("--label", "endpoint=/cart"), "burn")
    linked = cpu_seconds_of(top("--trace-id", TRACE_ID, "--span-id", SPAN_ID), "burn")
    everywhere = cpu_seconds_of(top("--label", "region=eu"), "burn")
    print(f"burn: {whole:.3f} s, labelled {labelled:.3f} s, linked {linked:.3f} s, region {everywhere:.3f} s")
    with open(sys.argv[4]) as file:
        sampled = int(file.read()) / 1e9
    # Samples count whole periods: the last partial period of each thread is missing.
    total = top()["total"] / 1e9
    if abs(total - sampled) > 0.02:
        sys.exit(f"the program's samples carry {sampled:.3f} s of CPU, the profile says {total:.3f} s")
    # The rest is imports.
    if whole < 0.98 * total:
        sys.exit(f"the profile says {total:.3f} s of CPU, but {whole:.3f} s of the only function that burns any")
    # The part under the label is two thirds; a sample across its border counts for one side.
    if not 0.55 <= labelled / whole <= 0.75 or labelled != linked or everywhere != whole:
        sys.exit("labels or links differ from what the program set")


if __name__ == "__main__":
    main()
