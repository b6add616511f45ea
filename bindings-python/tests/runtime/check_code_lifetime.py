"""Code objects end and their addresses are reused while samples are queued in the ring: no name is ever wrong."""

import contextvars
import gc
import os
import subprocess
import sys
import time
import unittest

from native_testing import runtime, variable

#: Samples of short-lived code that a run must name.
MIN_NAMED = 1000
#: At least an eighth of the samples are of short-lived code; the others are of its compilation.
SAMPLES = 8 * MIN_NAMED
#: Timeout for the collection of the samples.
TIMEOUT_S = 90


def compiled(number, body):
    scope = {}
    exec(f"def burn_{number}(rounds):\n{body}", scope)
    return scope[f"burn_{number}"]


LOOP = "    total = 0\n    for step in range(rounds):\n        total += step * step\n    return total\n"
CALLS = LOOP.replace("range(rounds)", "range(rounds // 8)").replace("step * step", "max(len(str(step)), step)")


def count_names(samples):
    """(right, wrong, ended): the frames named `burn_<number>`, compared with the number of their context."""
    right, wrong, ended = 0, [], 0
    for context, _, frames in samples:
        for name, _ in frames:
            if name == "[code_ended]":
                ended += 1
            elif name.startswith("burn_"):
                if name == f"burn_{context}":
                    right += 1
                else:
                    wrong.append((name, context))
    return right, wrong, ended


class CodeLifetime(unittest.TestCase):
    def churn(self, interval_us, drain_ms, rounds, kept_alive=0):
        def run_short_lived_code():
            number = 0
            alive = []
            deadline = time.monotonic() + TIMEOUT_S
            while time.monotonic() < deadline:
                for _ in range(500):
                    number += 1
                    variable.set(number)
                    burn = compiled(number, LOOP if number % 2 else CALLS)
                    burn(rounds)
                    if kept_alive:
                        alive.append(burn)
                        if len(alive) > kept_alive:
                            alive.pop(number % kept_alive)
                    del burn
                if runtime.sampler_collected() >= SAMPLES:
                    return number

        runtime.sampler_start(interval_us, drain_ms)
        try:
            made = contextvars.Context().run(run_short_lived_code)
        finally:
            samples, sent, dropped = runtime.sampler_stop()
        right, wrong, ended = count_names(samples)
        report = f"{made} codes, {len(samples)} samples of {sent} signals, {dropped} dropped: "
        report += f"{right} right, {len(wrong)} wrong, {ended} ended"
        if "SPANPROF_SHOW" in os.environ:
            print(report, dict(runtime.statistics()))
        self.assertEqual(wrong, [], report)
        self.assertGreaterEqual(right, MIN_NAMED, report)
        self.assertLessEqual(ended, right // 100, report)
        return samples

    def test_code_that_ends_right_after_it_ran(self):
        self.churn(interval_us=300, drain_ms=20, rounds=2000)

    def test_code_that_ends_long_before_the_drain_runs(self):
        self.churn(interval_us=300, drain_ms=700, rounds=600)

    def test_live_code_among_ending_code(self):
        self.churn(interval_us=300, drain_ms=100, rounds=600, kept_alive=300)

    def test_unsampled_code_leaves_no_tombstone(self):
        # In its own process: after many code objects a bucket may be shared with sampled code.
        program = (
            "from native_testing import runtime\n"
            "for _ in range(40_000): compile('x = 1', 'unsampled', 'exec')\n"
            "found = dict(runtime.statistics())\n"
            "assert int(found['python.codes_ended']) >= 40_000, found\n"
            # Code objects that the self-check at start marked may end meanwhile.
            "assert int(found['python.tombstones']) <= 20, found\n"
        )
        path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_memory_of_tombstones_is_freed(self):
        def kept():
            return int(dict(runtime.statistics())["python.tombstones_kept"])

        def drain_for_a_moment():
            runtime.sampler_start(1000, 10)
            time.sleep(0.1)
            runtime.sampler_stop()

        for number in range(3000):
            exec(f"def gone_{number}():\n    return walk()\ngone_{number}()", {"walk": runtime.walk})
        gc.collect()
        gc.disable()
        try:
            drain_for_a_moment()
            self.assertGreater(kept(), 1000)
            time.sleep(3.1)
            drain_for_a_moment()
            self.assertLessEqual(kept(), 50)
        finally:
            gc.enable()

    def test_a_forked_child_names_its_own_code(self):
        runtime.sampler_start(300, 20)
        try:
            for number in range(30):
                child = os.fork()
                if child == 0:
                    ok = False
                    try:
                        runtime.after_fork_in_child()
                        burn = compiled(number, "    return walk()\n")
                        burn.__globals__["walk"] = runtime.walk
                        ok = burn(1)[1][0][0] == f"burn_{number}"
                        del burn
                    finally:
                        os._exit(0 if ok else 1)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            runtime.sampler_stop()


if __name__ == "__main__":
    unittest.main()
