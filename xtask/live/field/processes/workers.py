"""Programs that fork: output and exit code of each are those without spanprof.

    workers.py pool|daemon|task-runner|data-loader|children|pid1
"""

import os
import subprocess
import sys

import field

#: Programs, and the minimum number of samples in the profiles.
PROGRAMS = {"pool": 20, "daemon": 10, "task-runner": 10, "data-loader": 20, "children": 30, "pid1": 10}


def main(kind):
    words = [sys.executable, os.path.join(field.HERE, "processes/forking.py"), kind]
    if kind == "pid1":
        unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
            raise field.Skip("`unshare --pid` is not allowed here")
        words = [*unshare, *words]
    ours, profiles = field.compared(words)
    count = field.expect_samples(profiles, PROGRAMS[kind])
    return f"exit {ours.code}, {count} samples"


if __name__ == "__main__":
    field.cell(main)
