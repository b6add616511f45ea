"""Checks the profiles of `threads.py` or `threads.js` in a directory: each of the threads, whose number is the second argument, has
CPU time under its label, and most of it is in the function `work`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "bindings-python/tests"))

from pprof_reader import read_profile  # noqa: E402

THREADS = [str(number) for number in range(int(sys.argv[2]))]

spent, in_work = {}, 0
for path in pathlib.Path(sys.argv[1]).rglob("*.pb.gz"):
    for sample in read_profile(path).samples:
        number, ns = sample.labels.get("thread"), sample.values.get("cpu", 0)
        if number in THREADS:
            spent[number] = spent.get(number, 0) + ns
            in_work += ns if "work" in sample.frames else 0
total = sum(spent.values())
print(f"{len(spent)} threads, {total / 1e6:.0f} ms under their labels, {100 * in_work / max(total, 1):.1f} % of it in `work`")
if len(spent) < len(THREADS) or in_work < 0.9 * total:
    sys.exit(f"of {len(THREADS)} threads: {spent}")
