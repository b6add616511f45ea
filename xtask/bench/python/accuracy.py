"""Shares and totals against thread CPU clocks, at four rates, two depths, with 1 and 16 threads, and samples per CPU second
of each clock; prints Markdown.

Each run has its own processor, except in the last table, where a busy program shares it. There the scheduler switches at the
ticks at which thread timers expire, and shares are biased towards the code after a switch, with every timer-based profiler.
Run it on an idle machine."""

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import measuring

RATES_HZ = (19, 100, 250, 1000)
DEPTHS = (20, 100)
THREADS = (1, 16)
CLOCKS = ("thread_timer", "perf")
CHOICES = ("thread_timer", "auto")
#: Prefix of a mix: runs beside a busy program on the same processor.
CONTENDED = "contended-"
#: Cycle of a periodic program in milliseconds of CPU time; 4 is the kernel's tick at 250 Hz.
CYCLES_MS = (1, 4, 10, 100)
#: Target number of samples in a run, within its limit of CPU seconds.
SAMPLES = 5000
LONGEST_CPU_SECONDS = 20

processors = queue.SimpleQueue()


def read(command, folder):
    """CPU nanoseconds per function, callees included, and of all samples, from the files of the run."""
    words = [command, "top", folder, "--type", "cpu", "--limit", "0", "--json"]
    table = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {row["function"]: row["cum"] for row in table["rows"]}, table["total"]


@contextlib.contextmanager
def busy_program(processor):
    """Uses a whole processor."""
    program = subprocess.Popen(["taskset", "--cpu-list", str(processor), sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def run(given, mix, clock, rate, depth, threads, number):
    folder = os.path.join(given.folder, f"{mix}-{clock}-{rate}-{depth}-{threads}-{number}")
    cpu_seconds = 2.0 if given.short else min(SAMPLES / rate, LONGEST_CPU_SECONDS)
    beside = busy_program if mix.startswith(CONTENDED) else contextlib.nullcontext
    words = ("accuracy_run.py", mix.removeprefix(CONTENDED), clock, rate, depth, threads, cpu_seconds, folder)
    processor = processors.get()
    try:
        with beside(processor):
            truth = measuring.child(given.pythons["spanprof"], *words, processor=processor)
    finally:
        processors.put(processor)
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


def row(label, runs):
    """One row of a table, from the runs of one case."""
    worst = max(abs(error) for one in runs for error in one["errors"].values())
    bias = max(abs(sum(one["errors"][part] for one in runs) / len(runs)) for part in runs[0]["errors"])
    within = sum(all(abs(error) <= one["bound"] for error in one["errors"].values()) for one in runs)
    totals = [one["total"] for one in runs]
    return [
        *label,
        runs[0]["clock"],
        f"{sum(one['rate'] for one in runs) / len(runs):.0f}",
        f"{worst:.2f}",
        f"{runs[0]['bound']:.2f}",
        f"{within}/{len(runs)}",
        f"{bias:.2f}",
        f"{min(totals):+.2f} … {max(totals):+.2f}",
    ]


def main():
    given = measuring.arguments()
    repeats = range(1 if given.short else 5)
    cases = [("python", "auto", rate, depth, threads) for rate in RATES_HZ for depth in DEPTHS for threads in THREADS]
    cases += [("python", clock, rate, 20, 1) for rate in (250, 1000) for clock in CLOCKS]
    cases += [("native", "auto", rate, 20, threads) for rate in (100, 1000) for threads in THREADS]
    cases += [(CONTENDED + "python", clock, 100, 20, 1) for clock in CHOICES]
    cases += [
        (f"{beside}cycle-{cycle}", clock, rate, 20, 1)
        for beside in ("", CONTENDED)
        for cycle in CYCLES_MS
        for rate in (100, 250, 1000)
        for clock in CHOICES
    ]
    usable = sorted(os.sched_getaffinity(0))
    for processor in usable:
        processors.put(processor)
    with ThreadPoolExecutor(max_workers=len(usable)) as pool:
        asked = {case: [pool.submit(run, given, *case, number) for number in repeats] for case in cases}
        done = {case: [one.result() for one in runs] for case, runs in asked.items()}
    results = [
        "clock",
        "samples per CPU second",
        "worst share error, points",
        "3 standard errors",
        "runs within",
        "mean bias, points",
        "total, % off (range)",
    ]

    def rows(mix, asked_for, *columns):
        """The rows of the cases of one table."""
        chosen = [case for case in cases if case[0] == mix and case[1] in asked_for]
        return [row([case[column] for column in columns], done[case]) for case in chosen]

    print(f"50/30/20 mix; true shares by thread CPU clocks in the same process; {len(repeats)} runs per row.\n")
    measuring.table(["Hz", "depth", "threads", *results], rows("python", ["auto"], 2, 3, 4))
    print("Each clock alone, depth 20, one thread.\n")
    measuring.table(["Hz", *results], rows("python", CLOCKS, 2))
    print("Python code beside hashlib and zlib, which release the interpreter lock; depth 20.\n")
    measuring.table(["Hz", "threads", *results], rows("native", ["auto"], 2, 4))
    print("The 50/30/20 mix beside a busy program on the same processor; depth 20, one thread.\n")
    measuring.table(["Hz", "requested", *results], rows(CONTENDED + "python", CHOICES, 2, 1))
    print("A periodic program: a part of 30 % of each cycle of CPU time; depth 20, one thread.\n")
    measuring.table(
        ["mix", "Hz", "requested", *results],
        [row([case[0], case[2], case[1]], done[case]) for case in cases if "cycle-" in case[0]],
    )


if __name__ == "__main__":
    main()
