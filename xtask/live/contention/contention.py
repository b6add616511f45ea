"""CPU time of labelled phases by the kernel beside the profile's, beside processes that occupy the processors. Runs each program of
`PROGRAMS` (JSON: language to command) with each set of profiles, clock, rate and kind of contention, and prints a table.

A cell passes if each phase agrees with the kernel within three standard errors by its label and by its span (they begin and end
between two readings, each of which takes CPU time), the ticks that were due were taken, and no time is `[signal_blocked]`. A cell that
fails runs again up to `ATTEMPTS` times in all. In `sections` the phases are short and repeated, some in step with the kernel's tick.
Arguments: expressions that occur in the name of each cell."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../bindings-python/tests"))

from pprof_reader import read_profile  # noqa: E402

PROFILES = {"defaults": {}, "wall": {"SPANPROF_WALL": "true"}, "off_cpu": {"SPANPROF_OFF_CPU": "true"},
            "all": {"SPANPROF_PROFILES": "all"}}
CLOCKS = ["perf", "thread_timer"]
RATES = [100, 1000]
#: Kernel tick of thread timers, seconds.
TICK = 1 / 250
#: A tick belongs to the phase in which it comes: two ends of a phase, each uniform over about an interval. Intervals are
#: uniform in 0.5 to 1.5 periods.
PERIODS_OF_ERROR = 0.6 * 2**0.5
#: Number of ticks that use one drawn interval: their count varies more than that of independent ones.
BATCH = {"auto": {100: 8}, "perf": {100: 8, 1000: 64}, "thread_timer": {100: 1, 1000: 1}}
#: Standard deviation of an interval, in periods.
SPREAD = 12**-0.5
LEAST_TAKEN = {"auto": 0.95, "perf": 0.95, "thread_timer": 0.90}
#: The quota of the control group, in processors.
QUOTA = 0.4


def started(programs):
    """Runs Python programs meanwhile; a cell needs no prefix."""
    running = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield []
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def alone():
    yield from started([])


@contextlib.contextmanager
def busy():
    yield from started(["while True: pass"] * 2)


@contextlib.contextmanager
def realtime():
    """Takes each processor for half of every 10 ms, at real-time priority."""
    text = ("import os,time\nos.sched_setaffinity(0,{%d})\nos.sched_setscheduler(0,os.SCHED_FIFO,os.sched_param(1))\n"
            "while True:\n end=time.monotonic()+.005\n while time.monotonic()<end: pass\n time.sleep(.005)")
    yield from started([text % cpu for cpu in range(os.cpu_count() or 1)])


@contextlib.contextmanager
def quota():
    """A control group with a CPU quota, in version 1 or 2; the prefix runs a command in it."""
    v1 = [path for path in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct") if os.path.exists(path + "/cpu.shares")]
    path = f"{v1[0] if v1 else '/sys/fs/cgroup'}/spanprof-contention-{os.getpid()}"
    os.mkdir(path)
    try:
        with open(path + ("/cpu.cfs_quota_us" if v1 else "/cpu.max"), "w") as file:
            file.write(str(int(QUOTA * 100_000)) if v1 else f"{int(QUOTA * 100_000)} 100000")
        yield ["sh", "-c", f"echo $$ > {path}/cgroup.procs && exec \"$@\"", "sh"]
    finally:
        os.rmdir(path)


def by_phase(directory):
    """CPU nanoseconds per phase by label and by span, and those that are `[signal_blocked]`."""
    phases, blocked = {"label": {}, "span": {}}, 0
    for path in pathlib.Path(directory).rglob("*.pb.gz"):
        for sample in read_profile(path).samples:
            spent, labels = sample.values.get("cpu", 0), sample.labels
            for name, phase in [("label", labels.get("phase")), ("span", labels.get("span_id", "").lstrip("0"))]:
                phases[name][phase] = phases[name].get(phase, 0) + spent
            blocked += spent if "[signal_blocked]" in sample.frames else 0
    return phases, blocked


def run(words, prefix, settings, directory):
    env = dict(os.environ, SPANPROF_FILE_DIRECTORY=directory, SPANPROF_SERVICE_NAME="contention",
               SPANPROF_CPU_BUDGET="0", SPANPROF_STOP_TIMEOUT="60s", **settings)
    ended = subprocess.run([*prefix, *words], env=env, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line.split(" ", 3) for line in ended.stdout.splitlines()]
    kernel = {line[1]: (int(line[2]), int(line[3])) for line in lines if line[0] == "phase"}
    stats = json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("stats "))[6:])
    return kernel, stats


def check(kernel, phases, blocked, stats, clock, rate):
    """The failures of a cell, its ticks, and the largest difference in standard errors."""
    failures, worst = [], 0.0
    period_ns = 1e9 * max(1 / rate, TICK if clock == "thread_timer" else 0)
    for phase, (least, most) in kernel.items():
        # Each sample falls into a short section by chance.
        error = (period_ns * most) ** 0.5 if clock == "auto" else PERIODS_OF_ERROR * period_ns
        for name, times in phases.items():
            spent = times.get(phase, 0)
            difference = max(least - spent, spent - most, 0)
            worst = max(worst, difference / error)
            if difference > 3 * error:
                failures.append(f"{name} {phase} {least / 1e6:.0f} to {most / 1e6:.0f} -> {spent / 1e6:.0f} ms")
    name = clock.replace("auto", "perf")
    taken, due = stats[f"clock.ticks.{name}"], stats[f"clock.ticks_due.{name}"]
    used_ns = stats["cost.process_cpu_ns"] - stats["cost.own_cpu_ns"]
    if due * period_ns < 0.9 * used_ns:
        failures.append(f"{due} ticks due in {used_ns / 1e6:.0f} ms")
    noise = 3 * SPREAD * (BATCH[clock][rate] / max(due, 1)) ** 0.5
    if taken < (LEAST_TAKEN[clock] - noise) * due:
        failures.append(f"{taken} of {due} ticks")
    if blocked:
        failures.append(f"[signal_blocked] {blocked / 1e6:.1f} ms")
    return failures, (taken, due), worst


def cells(programs):
    """The settings, the name and the command of each cell of one kind of contention."""
    for language, words in programs.items():
        for profiles, settings in PROFILES.items():
            for clock in CLOCKS:
                for rate in RATES:
                    yield f"{language}-{profiles}-{clock}-{rate}", words, settings, clock, rate
        if language in ("java", "rust"):
            yield f"{language}-sections-auto-100", words, {"SECTIONS": "1"}, "auto", 100


def run_cell(kind, prefix, name, words, profiles, clock, rate):
    """The failures of one run of a cell, and its ticks."""
    settings = dict(profiles, SPANPROF_CLOCK=clock, SPANPROF_SAMPLE_RATE=str(rate))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        kernel, stats = run(words, prefix, settings, directory)
        phases, blocked = by_phase(directory)
    failures, (taken, due), worst = check(kernel, phases, blocked, stats, clock, rate)
    print(f"{kind}-{name:36} {time.monotonic() - began:4.0f} s  {taken:5} of {due:5} ticks  largest difference "
          f"{worst:.1f} standard errors  late {stats['dropped.late_tick']}  rearmed {stats['clock.rearmed']}  "
          f"{'FAILED ' + '; '.join(failures) if failures else 'passed'}", flush=True)
    return failures, taken, due


def main():
    programs, totals, failed = json.loads(os.environ["PROGRAMS"]), {}, 0
    attempts = int(os.environ["ATTEMPTS"])
    for kind, contention in {"alone": alone, "busy": busy, "quota": quota, "realtime": realtime}.items():
        chosen = [cell for cell in cells(programs) if (kind != "alone" or "sections" in cell[0])
                  and all(re.search(word, f"{kind}-{cell[0]}") for word in sys.argv[1:])]
        if not chosen:
            continue
        with contention() as prefix:
            for cell in chosen:
                for _ in range(attempts):
                    failures, taken, due = run_cell(kind, prefix, *cell)
                    if not failures:
                        break
                total = totals.setdefault(cell[3], [0, 0])
                total[0], total[1] = total[0] + taken, total[1] + due
                failed += bool(failures)
    for clock, (taken, due) in totals.items():
        print(f"{clock}: {taken} of {due} ticks, {100 * taken / max(due, 1):.1f} %")
        failed += taken < LEAST_TAKEN[clock] * due
    print(f"{failed} failures" if failed else "every cell passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
