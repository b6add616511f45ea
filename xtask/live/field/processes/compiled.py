"""A program compiled by Nuitka, whose frames are not the interpreter's own: it runs as without spanprof, and its profiles contain
the compiled function.

    compiled.py
"""

import os
import subprocess
import sys

import field


def compiled():
    """Path of the compiled program, with the module that uses CPU time."""
    made = field.folder()
    nuitka = [sys.executable, "-m", "nuitka", "--quiet", "--follow-import-to=profiled", f"--output-dir={made}"]
    done = subprocess.run([*nuitka, field.burner("python")[1]], env=field.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    field.expect(done.returncode == 0, f"Nuitka failed\n{done.stdout}")
    return os.path.join(made, "burner.bin")


def main():
    _, profiles = field.compared([compiled()])
    return f"{field.expect_samples(profiles, 50)} samples"


if __name__ == "__main__":
    field.cell(main)
