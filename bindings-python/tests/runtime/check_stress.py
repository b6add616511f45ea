"""All kinds of code at once, sampled at 2 kHz: short-lived threads, short-lived code, recursion, generators, exceptions,
labels, garbage collections. Nothing crashes, nothing hangs, and every stack is possible."""

import collections
import contextvars
import gc
import os
import threading
import time
import unittest

from native_testing import runtime, variable

SECONDS = float(os.environ.get("SPANPROF_STRESS_SECONDS", "4"))
THREADS = int(os.environ.get("SPANPROF_STRESS_THREADS", "12"))

#: The possible callers of each stress function; any other caller on a stack is an error.
CALLERS = {
    "spin_recursion": {"spin_recursion", "worker"},
    "spin_generator": {"spin_generators", "spin_generator"},
    "spin_generators": {"worker"},
    "spin_raise": {"spin_raise", "spin_exceptions"},
    "spin_exceptions": {"worker"},
    "spin_key": {"spin_sort"},
    "spin_sort": {"worker"},
    "spin_short_thread": {"run"},
    "spin_threads": {"worker"},
    "spin_codes": {"worker"},
    "spin_labels": {"worker"},
    "made": {"spin_codes"},
    "spin_called_back": {"spin_first_caller", "spin_second_caller"},
    "spin_first_caller": {"spin_back_and_forth"},
    "spin_second_caller": {"spin_second_caller", "spin_back_and_forth"},
    "spin_back_and_forth": {"test_calls_back_from_c_at_every_instruction"},
}


def spin_recursion(depth):
    return spin_recursion(depth - 1) + 1 if depth else 0


def spin_generator(depth):
    if depth:
        yield from spin_generator(depth - 1)
    for number in range(3):
        yield number


def spin_generators():
    return sum(spin_generator(20))


def spin_raise(depth):
    try:
        if depth == 0:
            raise KeyError("deep")
        spin_raise(depth - 1)
    except KeyError:
        if depth == 30:
            return
        raise


def spin_exceptions():
    spin_raise(30)


def spin_key(value):
    return -value


def spin_sort():
    sorted(range(200), key=spin_key)


def spin_short_thread():
    variable.set(threading.get_native_id())
    sum(range(2000))


def spin_threads():
    threads = [threading.Thread(target=spin_short_thread) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def spin_codes():
    for number in range(20):
        scope = {}
        exec(compile(f"def made(n):\n    return [x * {number} for x in range(n)]", f"made {number}", "exec"), scope)
        scope["made"](50)


def spin_labels():
    def body():
        for number in range(50):
            token = variable.set(threading.get_native_id())
            sum(range(50))
            variable.reset(token)

    contextvars.copy_context().run(body)


def spin_called_back(value):
    return value


def spin_first_caller():
    return list(map(spin_called_back, range(40)))


def spin_second_caller(depth=3):
    return spin_second_caller(depth - 1) if depth else max(range(40), key=spin_called_back)


def last(name):
    return name.rpartition(".")[2]


def spin_back_and_forth(seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _ in range(100):
            spin_first_caller()
            spin_second_caller()


class Stress(unittest.TestCase):
    def check_edges(self, samples):
        """Counts the known pairs of caller and callee; each must be possible in the program."""
        edges = 0
        for _, _, frames in samples:
            names = [last(name) for name, _ in frames]
            for callee, caller in zip(names, names[1:]):
                if callee in CALLERS:
                    edges += 1
                    possible = caller in CALLERS[callee] or (caller, callee) == ("<lambda>", "spin_recursion")
                    self.assertTrue(possible, names)
        return edges

    def test_calls_back_from_c_at_every_instruction(self):
        runtime.sampler_start(60, 50)
        spin_back_and_forth(SECONDS)
        samples, sent, dropped = runtime.sampler_stop()
        lengths = collections.Counter(len(frames) for _, _, frames in samples)
        reasons = collections.Counter(reason or "walked" for _, reason, _ in samples)
        report = f"{len(samples)} samples of {sent} signals, {reasons}, {dropped} dropped, depths {lengths}"
        if "SPANPROF_SHOW" in os.environ:
            print(report)
        self.assertGreater(self.check_edges(samples), 5000, report)
        self.assertEqual(reasons["walked"], len(samples), report)

    def test_everything_at_once(self):
        stopping = threading.Event()
        operations = collections.Counter()
        jobs = [spin_generators, spin_exceptions, spin_sort, spin_threads, spin_codes, spin_labels]
        jobs.append(lambda: spin_recursion(150))

        def worker(job, number):
            while not stopping.is_set():
                job()
                operations[number] += 1
                if operations[number] % 200 == 0:
                    gc.collect(0)

        runtime.sampler_start(500, 50)
        threads = [threading.Thread(target=worker, args=(jobs[n % len(jobs)], n)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        stopping.set()
        for thread in threads:
            thread.join()
        samples, sent, dropped = runtime.sampler_stop()

        reasons = collections.Counter(reason or "walked" for _, reason, _ in samples)
        ended = sum(name == "[code_ended]" for _, _, frames in samples for name, _ in frames)
        edges = self.check_edges(samples)
        report = f"{len(samples)} samples of {sent} signals, {sum(operations.values())} operations, {reasons}, "
        report += f"{dropped} dropped, {ended} ended, {edges} edges, {runtime.faults()} faults"
        if "SPANPROF_SHOW" in os.environ:
            print(report)
        self.assertGreater(edges, 1000, report)
        self.assertLess(reasons["invalid_frame"] + reasons["faulted_read"], len(samples) // 1000 + 2, report)
        self.assertLess(ended, len(samples) // 100 + 2, report)


if __name__ == "__main__":
    unittest.main()
