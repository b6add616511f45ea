"""Concurrent worker threads of Node.js: the program ends, in a time similar to that without spanprof.

    node_workers.py COUNT
"""

import os
import resource
import time

import field

#: CPU time of one worker's start under the profiler, and of the program's, in seconds: a multiple of the documented cost (10 and
#: 15 ms), since machines differ and the packages of tests are not optimized.
WORKER, PROGRAM = 0.1, 2
#: Samples of the workers' function. Most code events of the workers arrive while the drain thread has a three-hundredth of the
#: CPU: events beyond the queue are counted (`runtime.node.code_events_lost`), and their samples appear as `[code_ended]`.
SAMPLES = 10


def timed(words, profiles):
    """A run, its seconds, and those of the CPU."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = field.run(words, profiles, 580)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended, time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(count):
    words = [os.environ["FIELD_NODE"], "--no-warnings", os.path.join(field.HERE, "node/node_workers.js"), count]
    reference, bare, bare_cpu = timed(words, None)
    profiles = field.folder()
    ours, seconds, cpu = timed(words, profiles)
    field.expect_same(ours, reference)
    most = bare_cpu + PROGRAM + WORKER * int(count)
    field.expect(cpu < most, f"{cpu:.1f} s of CPU time, {bare_cpu:.1f} s without spanprof, allowed {most:.1f} s")
    samples = field.expect_samples(profiles, SAMPLES)
    every = sum(number for number, _, _ in field.cpu_samples(profiles))
    times = f"{seconds:.1f} s ({bare:.1f} bare), CPU {cpu:.1f} s ({bare_cpu:.1f} bare)"
    return f"{count} workers in {times}, {every} samples, {samples} of the workers' function"


if __name__ == "__main__":
    field.cell(main)
