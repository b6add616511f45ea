"""Checks the profiles in a directory: the function has CPU time; and with a further word, that no code is without a name because it
ended."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "bindings-python/tests"))

from pprof_reader import read_profile  # noqa: E402

directory, function, *is_complete = sys.argv[1:]
spent, ended = 0, 0
for path in pathlib.Path(directory).rglob("*.pb.gz"):
    for sample in read_profile(path).samples:
        ns = sample.values.get("cpu", 0)
        spent += ns if any(function in frame for frame in sample.frames) else 0
        ended += ns if "[code_ended]" in sample.frames else 0
print(f"{spent / 1e6:.0f} ms in `{function}`, {ended / 1e6:.0f} ms in [code_ended]")
sys.exit(not spent or bool(is_complete) and ended > 0)
