"""Fixtures: target programs run as real processes, their profiles read back from real files."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import spanprof  # noqa: F401  (fails here, with one clear message, when the package is not installed)
from pprof_reader import Profiles
from spanprof import threads

# `start` installs the hooks for executors; the scope tests run without it.
threads.install()


class Target:
    """A completed program, with its own directory of profiles."""

    def __init__(self, directory: pathlib.Path, completed: subprocess.CompletedProcess) -> None:
        self.directory = directory
        self.returncode = completed.returncode
        self.stdout = completed.stdout
        self.stderr = completed.stderr

    def profiles(self, profile_type: str = "cpu") -> Profiles:
        return Profiles(self.directory, profile_type)


@pytest.fixture
def run_target(tmp_path):
    """Runs Python source in a process of its own, with a file destination; fails the test when the program fails."""

    def run(source: str, *arguments: str, command=None, expect: int | None = 0, timeout: float = 60, **environment: str):
        directory = tmp_path / "profiles"
        directory.mkdir(exist_ok=True)
        program = tmp_path / "target.py"
        program.write_text(textwrap.dedent(source))
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPANPROF_", "OTEL_", "PYROSCOPE_"))}
        completed = subprocess.run(
            [*(command or [sys.executable]), str(program), *arguments],
            env={**clean, "SPANPROF_FILE_DIRECTORY": str(directory), "PYTHONWARNINGS": "default", **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if expect is not None:
            assert completed.returncode == expect, f"exit {completed.returncode}\n{completed.stdout}\n{completed.stderr}"
        return Target(directory, completed)

    return run
