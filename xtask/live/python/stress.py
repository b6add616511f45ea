"""Twenty threads with known causes of crashes in profilers, with every profile on, small intervals, changes of the
configuration, restarts and forks. The test is that the process survives and computes what it computes without a profiler.

    stress.py CLOCK SECONDS

With the clock `none` it runs without the profiler, to distinguish crashes of the interpreter.
"""

import collections
import itertools
import os
import random
import sys
import tempfile
import threading
import time
import warnings

import hung
import spanprof
import stress_work
import suite

#: Arguments of the work, so that every result is known before the start.
NUMBERS = range(4)
#: Threads may be switched after this time instead of 5 ms.
SWITCH_SECONDS = 0.0005
#: As in forks.py.
CHILD_IDLE_SECONDS, CHILD_RUN_SECONDS = 60, 20
#: Changes of the running profiler, in this order.
CHANGES = [
    {"heap_interval": 512}, {"lock_threshold": 0.001}, {"heap": False}, {"off_cpu": False, "wall": False},
    {"heap": True, "heap_interval": 16_384}, {"lock": False}, {"gc": False, "threads": False}, {"cpu": False},
    {"lock": True, "lock_threshold": 0.0}, {"off_cpu": True, "wall": True, "gc": True, "threads": True}, {"cpu": True},
    {"heap_interval": 524_288}, {"tags": {"changed": "yes"}}, {"heap_interval": 4096},
]  # fmt: skip
#: Time between two changes, and changes per run of the profiler.
CHANGE_SECONDS, CHANGES_PER_RUN = 0.3, 9


class Losses:
    """Sums of counters over the runs: some start with the process, others with each run."""

    def __init__(self):
        self.total = collections.Counter()
        self._last = {}

    def add(self, stats):
        for name, value in stats.items():
            if name.startswith(("samples.", "dropped.", "heap.samples", "heap.thinned", "internal.")) and isinstance(value, int):
                last = self._last.get(name, 0)
                self.total[name] += value - last if value >= last else value
                self._last[name] = value

    def begin_run(self):
        """Forgets the last values of the counters that start with each run."""
        self._last = {name: value for name, value in self._last.items() if not name.startswith("samples.")}


def settings(run, peak_directory):
    """Every other run has the smallest live set, which is thinned all the time, and writes the heap at its peak."""
    chosen = {"profiles": "all", "heap_interval": 4096, "lock_threshold": 0.0, "wall": True, "wall_rate": 200}
    if run % 2:
        chosen.update(heap_live_samples=1024, heap_peak_directory=peak_directory)
    return chosen


def child(expected):
    """A forked child, whose live set is full of its parent's objects. It ends with 0 when its results are right."""
    for work in stress_work.IN_CHILD:
        if work(1) != expected[work, 1]:
            os._exit(4)
    if os.getpid() % 2:
        spanprof.stop()
    os._exit(0)


def fork_children(expected, over, ends):
    while not over.is_set():
        with stress_work.ONE_INTERPRETER:
            pid = os.fork()
            if pid == 0:
                child(expected)
        detector = hung.HangDetector(pid, CHILD_IDLE_SECONDS, CHILD_RUN_SECONDS)
        while not detector.is_hung():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                ends[os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)] += 1
                break
            time.sleep(0.01)
        else:
            print(hung.describe(pid), file=sys.stderr, flush=True)
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            ends["hang"] += 1
        over.wait(0.3)


def change_until(until, begin, losses):
    """Changes and restarts the profiler; returns the number of runs."""
    changes = itertools.cycle(CHANGES)
    runs = 1
    for count in itertools.count(1):
        if time.monotonic() >= until:
            return runs
        time.sleep(CHANGE_SECONDS)
        if begin is None:
            continue
        losses.add(spanprof.stats())
        spanprof.update(**next(changes))
        if count % CHANGES_PER_RUN == 0:
            spanprof.flush(30)
            losses.add(spanprof.stats())
            spanprof.stop()
            losses.begin_run()
            begin(runs)
            runs += 1


def main():
    clock, seconds = suite.arguments()
    warnings.simplefilter("ignore", DeprecationWarning)  # From 3.12 on, of each fork beside threads.
    suite.watch(seconds)
    works = [*stress_work.ALL, stress_work.interpret]
    expected = {(work, number): work(number) for work in works for number in NUMBERS}
    sys.setswitchinterval(SWITCH_SECONDS)
    peaks = tempfile.TemporaryDirectory(prefix="spanprof-live-")
    begin = None if clock == "none" else lambda run: suite.start(clock, 2000, **settings(run, peaks.name))
    if begin:
        begin(0)
    over, broken, done, ends = threading.Event(), [], collections.Counter(), collections.Counter()

    def again(work, seed):
        generator = random.Random(seed)
        try:
            while not over.is_set():
                number = generator.choice(NUMBERS)
                found = work(number)
                if found != expected[work, number]:
                    raise AssertionError(f"{work.__name__}({number}) is {found}, not {expected[work, number]}")
                done[work.__name__] += 1
        except BaseException as error:
            broken.append((work.__name__, error))
            raise

    threads = [threading.Thread(target=again, args=(work, seed), name=work.__name__) for seed, work in enumerate(works)]
    threads.append(threading.Thread(target=fork_children, args=(expected, over, ends), name="forks"))
    for thread in threads:
        thread.start()
    losses = Losses()
    runs = change_until(time.monotonic() + seconds, begin, losses)
    over.set()
    for thread in threads:
        thread.join()
    if begin:
        spanprof.flush(30)
        losses.add(spanprof.stats())
        spanprof.stop()
    counted = {name: value for name, value in losses.total.items() if value}
    print(f"{seconds} s, {runs} runs, {sum(done.values())} results, children {dict(ends)}: {counted}")
    print(f"results of each work: {dict(done)}")
    if broken:
        sys.exit(f"the profiled program failed: {broken}")
    if set(ends) != {0}:
        sys.exit(f"children crashed, hung or had other results: {dict(ends)}")
    if begin is None:
        return
    cpu_seconds = time.process_time()
    if losses.total["samples.cpu"] < 20 * cpu_seconds:
        sys.exit(f"only {losses.total['samples.cpu']} CPU samples in {cpu_seconds:.0f} s of CPU time")
    for name in ("samples.wall", "samples.off_cpu", "samples.submitted", "heap.samples", "heap.samples_freed"):
        if not losses.total[name]:
            sys.exit(f"no {name} in {seconds} s")
    if losses.total["internal.panics"]:
        sys.exit("panics inside the profiler")


if __name__ == "__main__":
    main()
