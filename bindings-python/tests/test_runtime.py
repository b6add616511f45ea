"""Runs the checks of the runtime (stacks, lines, strings, threads, contexts, code lifetime) in a process without the package."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from spanprof import _spanprof as native

CHECKS = sorted((pathlib.Path(__file__).parent / "runtime").glob("check_*.py"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.stem)
def test_the_runtimes_checks_hold(check):
    done = subprocess.run(
        [sys.executable, "-m", "unittest", check.stem],
        cwd=check.parent,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(native.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 0 tests" not in done.stderr


def test_there_are_checks():
    assert len(CHECKS) >= 5
