"""A Go library in a Python program: Go keeps SIGURG, the clocks use another signal, and profiling continues.

    go_beside.py before|after
"""

import os
import re
import shutil
import subprocess
import sys

import field


def library():
    """The library, built from its source."""
    if not shutil.which("go"):
        raise field.Skip("no Go on PATH: https://go.dev/dl")
    built = os.path.join(field.folder(), "library.so")
    words = ["go", "build", "-buildmode=c-shared", "-o", built, os.path.join(field.HERE, "clocks/go_library.go")]
    done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, CGO_ENABLED="1"), check=False)
    field.expect(done.returncode == 0, f"the Go library does not build\n{done.stderr}")
    return built


def main(when):
    ours, profiles = field.compared([sys.executable, os.path.join(field.HERE, "clocks/beside_go.py"), library(), when])
    signal = re.search(r"signal (\S+)", ours.stderr)
    field.expect(signal, f"no clock signal was reported\n{ours.stderr}")
    field.expect(signal[1] not in ("SIGURG", "23"), f"the clocks still use SIGURG, which Go handles\n{ours.stderr}")
    count = field.expect_samples(profiles, 50)
    after = sum(n for name, n in field.functions(profiles).items() if name.split(".")[-1] == "work")
    field.expect(after >= 50 * field.SCALE, f"{after} samples after the signal changed, expected half of a second\n{ours.stderr}")
    return f"the clocks use {signal[1]}, {count} samples, {after} of them after the change"


if __name__ == "__main__":
    field.cell(main)
