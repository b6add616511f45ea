"""Estimates of the heap profile compared with known amounts: a mix of sizes over twenty runs, a leak at the default interval, and
the live set directly after a million frees."""

from __future__ import annotations

import math

import pytest
from test_heap import PROGRAM, megabytes

# Sizes of objects, bytes, and their shares of the bytes, percent.
SIZES = {16: 2, 512: 18, 16_384: 30, 262_144: 20, 4 << 20: 30}
# Bytes that each function allocates in a run.
SHARES = {"sixty": 120 << 20, "thirty": 60 << 20, "ten": 20 << 20}

MIX = (
    PROGRAM
    + f"""
from itertools import repeat
SIZES = {SIZES}
HEADER = sys.getsizeof(b"")

def allocate_mix(total):
    for size, percent in SIZES.items():
        count = total * percent // 100 // size
        # The ring holds about two thousand samples.
        block = max((8 << 20) // size, 1)
        while count > 0:
            if size == 16:
                for _ in repeat(None, min(block, count)):
                    object()
            else:
                contents = size - HEADER
                for _ in repeat(None, min(block, count)):
                    bytes(contents)
            count -= block
            assert spanprof.flush(30)

def sixty():
    allocate_mix({SHARES["sixty"]})

def thirty():
    allocate_mix({SHARES["thirty"]})

def ten():
    allocate_mix({SHARES["ten"]})

def run_mix(name):
    with spanprof.tag_wrapper({{"run": name}}):
        sixty()
        thirty()
        ten()
"""
)


def truth_and_error(total: int, interval: int) -> tuple[float, float]:
    """The exact number of bytes of `allocate_mix` and the standard error of their estimate."""
    exact, variance = 0, 0.0
    for size, percent in SIZES.items():
        count = total * percent // 100 // size
        selected = -math.expm1(-size / interval)
        exact += count * size
        variance += count * size * size * (1 - selected) / selected
    return exact, math.sqrt(variance)


def test_each_run_of_a_mix_of_sizes_is_within_its_error_and_the_mean_of_twenty_within_one_percent(run_target):
    target = run_target(
        MIX
        + """
start(heap_interval=16_384, upload_interval=3600, file_keep=10_000)
for run in range(20):
    run_mix(str(run))
stats = spanprof.stats()
assert stats["dropped.heap_ring_full"] == 0 and stats["dropped.heap_busy"] == 0, stats
spanprof.stop()
""",
        timeout=300,
    )
    allocated = target.profiles("allocs")
    # The smallest share has a standard error of 0.37 % over twenty runs.
    for (function, total), tolerance in zip(SHARES.items(), (0.01, 0.01, 0.0185)):
        exact, error = truth_and_error(total, 16_384)
        estimates = [0.0] * 20
        for sample in allocated.through(function):
            estimates[int(sample.labels["run"])] += sample.bytes
        # Five standard errors: one of 30,000 executions of this test fails by chance.
        assert all(abs(estimate - exact) < 5 * error for estimate in estimates), (function, exact, error, estimates)
        assert sum(estimates) / 20 == pytest.approx(exact, rel=tolerance), function


def test_at_the_default_interval_each_run_of_a_mix_and_a_leak_of_64_mb_is_within_its_error(run_target):
    target = run_target(
        MIX
        + """
start(heap_interval=524_288, upload_interval=3600, file_keep=10_000)
for run in range(2):
    run_mix(str(run))
    leak(32)
spanprof.stop()
"""
    )
    for function, total in SHARES.items():
        exact, error = truth_and_error(total, 524_288)
        for run in range(2):
            assert megabytes(target, "allocs", function, run=str(run)) * 1e6 == pytest.approx(exact, abs=5 * error)
    # 6,400 blocks, each sampled with probability 0.019.
    selected = -math.expm1(-10_033 / 524_288)
    last = target.profiles("heap").files[-1]
    in_use = sum(sample.bytes for sample in last.samples if "leak" in sample.frames)
    assert in_use == pytest.approx(6400 * 10_033, abs=5 * 10_033 * math.sqrt(6400 * (1 - selected) / selected))
    assert not any("allocate_mix" in sample.frames and sample.bytes > 8 << 20 for sample in last.samples)


def test_the_live_set_is_right_directly_after_a_million_frees(run_target):
    target = run_target(
        PROGRAM
        + """
from itertools import repeat
start(heap_interval=4096, upload_interval=3600, file_keep=10_000)
kept, freed = [None] * 100_000, [None] * 1_000_000

def keep(begin, count):
    # 64 bytes each.
    kept[begin:begin + count] = [bytes(31) for _ in repeat(None, count)]

def free_later(begin, count):
    freed[begin:begin + count] = [bytes(31) for _ in repeat(None, count)]

assert spanprof.flush(30)
before = live_samples()
for block in range(20):
    keep(block * 5_000, 5_000)
    free_later(block * 50_000, 50_000)
    assert spanprof.flush(30)
allocated = live_samples()
freed.clear()
remaining = live_samples()
# 17,055 samples of 1,100,000 objects, 1,550 of 100,000: eight standard errors, and the objects of `stats` itself.
assert abs(allocated - before - 17_055) < 1_100, (before, allocated)
assert abs(remaining - before - 1_550) < 400, (before, remaining)
stats = spanprof.stats()
assert stats["dropped.heap_ring_full"] == 0 and stats["dropped.heap_live"] == 0, stats
spanprof.stop()
""",
        timeout=120,
    )
    last = target.profiles("heap").files[-1]
    in_use = {name: sum(sample.bytes for sample in last.samples if name in sample.frames) for name in ("keep", "free_later")}
    # A standard error is 2.5 %.
    assert in_use["keep"] == pytest.approx(6_400_000, rel=0.15)
    # The interpreter keeps objects of its own for the function, of some kilobytes.
    assert in_use["free_later"] < 200_000
