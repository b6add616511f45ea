"""Programs whose clocks are altered by libfaketime: the result is that without spanprof, the CPU time of the function is in the
profiles, and the times of the profiles are true.

    altered_clocks.py python|node
"""

import os
import resource
import time

import field

#: Altered times: both directions, and a date. Each is applied with and without the monotonic clock.
TIMES = ["-400d", "+400d", "2031-05-05 12:00:00"]
#: CPU time of the function in seconds.
BURNED = 2
#: Samples of the function, as a share of those with true clocks.
SHARE = 0.8
#: CPU time beyond that of the run without spanprof, in seconds: a thread that does not wait uses more.
MOST = 1.5


def timed(words, profiles, **altered):
    """A run and its seconds of CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = field.run(words, profiles, **altered)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one(words, altered):
    """Samples of the function in the profiles."""
    began = time.time()
    reference, bare = timed(words, None, **altered)
    profiles = field.folder()
    ours, used = timed(words, profiles, **altered)
    field.expect_same(ours, reference)
    field.expect(used < bare + MOST, f"{used:.1f} s of CPU time, {bare:.1f} s without spanprof")
    for at in field.times(profiles):
        field.expect(began - 1 < at < time.time() + 1, f"a profile of {time.ctime(at)}, at {time.ctime()}")
    return field.samples_of(profiles)


def main(language):
    words = [*field.burner(language), str(BURNED)]
    expected, counts = one(words, {}), []
    field.expect(expected >= 50 * BURNED * field.SCALE, f"{expected} samples of {BURNED} s with true clocks")
    for at in TIMES:
        for keeps_monotonic in ("1", "0"):
            altered = {"LD_PRELOAD": os.environ["FIELD_FAKETIME"], "FAKETIME": at, "FAKETIME_DONT_FAKE_MONOTONIC": keeps_monotonic}
            try:
                counts.append(one(words, altered))
                field.expect(counts[-1] >= SHARE * expected, f"{counts[-1]} samples, {expected} with true clocks")
            except field.CellFailure as failure:
                monotonic = "true" if keeps_monotonic == "1" else "altered"
                raise field.CellFailure(f"{at}, monotonic clock {monotonic}: {failure}") from failure
    return f"{min(counts)} to {max(counts)} samples with {len(counts)} altered clocks, {expected} with true clocks"


if __name__ == "__main__":
    field.cell(main)
