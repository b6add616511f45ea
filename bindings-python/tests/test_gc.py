"""Pauses for garbage collection: their total, stacks, labels, and `gc.callbacks` while the profiler does not run."""

from __future__ import annotations

import json

import pytest

GARBAGE = """
import gc
import json
import time

class Node:
    pass

def cycle():
    first, second = Node(), Node()
    first.other, second.other = second, first

def allocate(count, kept=[]):
    for number in range(count):
        kept.append([number])
        cycle()

class Pauses:
    total = started = 0

    def begin(self, phase, info):
        if phase == "start":
            self.started = time.perf_counter()

    def end(self, phase, info):
        if phase == "stop":
            self.total += time.perf_counter() - self.started
"""


def test_pauses_have_their_total_with_generation_cause_stack_and_labels(run_target):
    target = run_target(
        GARBAGE
        + """
import spanprof

spanprof.start()
pauses = Pauses()
# Inside of the profiler's own callback, whose system calls are where a busy machine takes the processor away.
gc.callbacks.append(pauses.begin)
gc.callbacks.insert(0, pauses.end)
with spanprof.tag_wrapper({"endpoint": "/allocate"}):
    allocate(200_000)
before = pauses.total
gc.collect()
print(json.dumps([before, pauses.total - before]))
spanprof.stop()
"""
    )
    automatic, requested = json.loads(target.stdout)
    profiles = target.profiles("gc")
    assert profiles.files[0].types == [("gc", "nanoseconds")]
    by_cause = {"[automatic]": 0, "[requested]": 0}
    for sample in profiles.samples:
        # The leaf of the part without a processor.
        cause, generation, collector, *stack = [frame for frame in sample.frames if frame != "[scheduled out]"]
        by_cause[cause] += sample.nanoseconds
        assert generation in ("[generation 0]", "[generation 1]", "[generation 2]") and collector == "[GC]"
        assert stack[-1] == "<module>"
        if cause == "[automatic]":
            assert sample.labels.get("endpoint") == "/allocate" and "allocate" in stack
        else:
            assert generation == "[generation 2]" and stack == ["<module>"]
    # Short pauses are sampled: one of 50 µs with probability 1/2.
    assert by_cause["[automatic]"] / 1e9 == pytest.approx(automatic, rel=0.15)
    assert by_cause["[requested]"] / 1e9 == pytest.approx(requested, rel=0.1)


def test_the_part_of_a_pause_without_a_processor_has_its_own_leaf(run_target):
    target = run_target(
        """
import gc
import time
import spanprof

class Slow:
    def __del__(self):
        time.sleep(0.1)

spanprof.start()
slow = Slow()
slow.own = slow
del slow
gc.collect()
spanprof.stop()
"""
    )
    waited = [sample for sample in target.profiles("gc").samples if sample.frames[0] == "[scheduled out]"]
    assert sum(sample.nanoseconds for sample in waited) == pytest.approx(0.1e9, rel=0.5)


def test_callbacks_are_installed_only_while_pauses_are_reported(run_target):
    target = run_target(
        """
import gc
import spanprof

counts = [len(gc.callbacks)]
def note():
    counts.append(len(gc.callbacks))

spanprof.start(); note()
spanprof.update(gc=False); note()
spanprof.update(gc=True); note()
spanprof.start(); note()
spanprof.stop(); note()
spanprof.start(gc=False); note()
spanprof.stop(); note()
print(*counts)
"""
    )
    assert target.stdout.split() == ["0", "1", "0", "1", "1", "0", "0", "0"]


def test_a_program_that_clears_the_callbacks_ends_the_reports_without_an_error(run_target):
    target = run_target(
        GARBAGE
        + """
import spanprof

spanprof.start()
gc.callbacks.clear()
allocate(50_000)
assert spanprof.stop()
"""
    )
    assert target.profiles("gc").files == []
    assert target.stderr == "" or "Error" not in target.stderr


def test_collections_in_a_forked_child_are_reported_by_the_child(run_target):
    target = run_target(
        GARBAGE
        + """
import os
import spanprof

spanprof.start()
child = os.fork()
if child == 0:
    allocate(50_000)
    gc.collect()
    spanprof.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
spanprof.stop()
"""
    )
    assert any("[requested]" in sample.frames for sample in target.profiles("gc").samples)
