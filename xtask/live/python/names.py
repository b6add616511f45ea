"""Functions that are compiled, run under a label with their own name, and freed, so that addresses are reused. Every
sample under such a label must name that function and no other: 0 wrong of at least 1,000."""

import glob
import os
import sys
import time

import pprof_file
import spanprof
import suite

WANTED_SAMPLES = 1000


def burn_under_own_name(number):
    name = f"made_{number}"
    body = f"def {name}(until, clock):\n    while clock() < until:\n        pass\n"
    space = {}
    exec(compile(body, f"made_{number}.py", "exec"), space)
    with spanprof.tag_wrapper({"made": name}):
        space[name](time.thread_time() + 0.004, time.thread_time)


def main():
    clock, seconds = suite.arguments()
    suite.watch(seconds * 3)
    folder = suite.start(clock, 1000)
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        burn_under_own_name(number)
    spanprof.stop()
    right = wrong = ended = 0
    examples = []
    for path in glob.glob(os.path.join(folder, "cpu-*.pb.gz")):
        for values, labels, stack in pprof_file.read(path)[1]:
            wanted = labels.get("made")
            made = [name for name in stack if name.startswith("made_")]
            if wanted is None and not made:
                continue
            if wanted is not None and made == [wanted]:
                right += values[0]
            elif "[code_ended]" in stack:
                ended += values[0]
            elif wanted is None or made:
                wrong += values[0]
                examples.append((wanted, made))
    print(f"{number} functions, {right} samples right, {wrong} wrong, {ended} named as ended")
    if wrong:
        sys.exit(f"wrong names: {examples[:5]}")
    if right < WANTED_SAMPLES * min(1.0, seconds / 20):
        sys.exit(f"only {right} samples, too few")


if __name__ == "__main__":
    main()
