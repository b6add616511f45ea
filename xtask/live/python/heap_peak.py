"""Processes that leak until they are killed at a limit of resident memory, and by the limit of a cgroup where one can be
made. Each must leave its heap behind, at most a second old, with the leaking function first."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import suite

LIMIT_BYTES = 200_000_000
MAX_AGE_SECONDS = 1.0
#: Both memory hierarchies: version 2, version 1.
HIERARCHIES = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]

LEAKING = """
import os, sys, time
import spanprof

cache, kept = [], []

def fill_cache():
    for _ in range(100):
        cache.append(b"x" * 50_000)

def remember():
    kept.append(b"x" * 50_000)

if len(sys.argv) > 2:
    with open(sys.argv[2], "w") as group:
        group.write(str(os.getpid()))
spanprof.start(heap=True, service_name="leaky", heap_peak_directory=sys.argv[1], destinations=[])
if len(sys.argv) > 2:
    print(spanprof.stats()["memory.limit_bytes"], spanprof.stats()["memory.until_limit_bytes"], flush=True)
fill_cache()
while True:
    for _ in range(10):
        remember()
        b"x" * 50_000
    time.sleep(0.01)
"""


def check(directory, process, killed_at):
    """Reads the heap that the process left behind; returns its age in seconds."""
    command = [sys.executable, "-m", "spanprof", "heap", "--last-crash", directory, "--json"]
    crash = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    age = killed_at - crash["time_unix_ns"] / 1e9
    first = crash["functions"]["rows"][0]
    if crash["process_id"] != process.pid or first["function"] != "remember":
        sys.exit(f"wrong record: {crash}")
    if not 0 <= age <= MAX_AGE_SECONDS:
        sys.exit(f"the record of process {process.pid} is {age:.2f} s old")
    print(f"{crash['live_bytes'] / 1e6:.0f} MB in use, {crash['resident_bytes'] / 1e6:.0f} MB resident, {age:.2f} s old")
    return age


def kill_at_limit(directory):
    """Kills the process when its resident memory passes the limit."""
    process = subprocess.Popen([sys.executable, "-c", LEAKING, directory])
    page = os.sysconf("SC_PAGE_SIZE")
    statm = pathlib.Path(f"/proc/{process.pid}/statm")
    while int(statm.read_text().split()[1]) * page < LIMIT_BYTES:
        time.sleep(0.005)
    killed_at = time.time()
    process.kill()
    process.wait()
    return check(directory, process, killed_at)


def new_group():
    """A cgroup with the memory limit; None where none can be made."""
    for root, limit in HIERARCHIES:
        group = pathlib.Path(root, f"spanprof-live-{os.getpid()}")
        try:
            if not pathlib.Path(root, "cgroup.procs").exists():
                continue
            group.mkdir()
            (group / limit).write_text(str(LIMIT_BYTES))
            return group
        except OSError:
            if group.is_dir():
                group.rmdir()
    return None


def killed_by_group(directory, group):
    """The kernel kills the process when its cgroup passes the limit."""
    command = [sys.executable, "-c", LEAKING, directory, str(group / "cgroup.procs")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    limit, until_limit = map(int, process.stdout.readline().split())
    status = process.wait()
    killed_at = time.time()
    if status != -9 or abs(limit - LIMIT_BYTES) > 4096 or not 0 < until_limit < limit:
        sys.exit(f"status {status}, limit {limit}, until limit {until_limit}")
    return check(directory, process, killed_at)


def main():
    _clock, processes = suite.arguments()
    suite.watch(30 * processes)
    ages = []
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as directory:
            ages.append(kill_at_limit(directory))
    print(f"{len(ages)} of {processes} recovered, at most {max(ages):.2f} s old")
    group = new_group()
    if group is None:
        print("not to be had here: a cgroup with a memory limit")
        return
    try:
        with tempfile.TemporaryDirectory() as directory:
            killed_by_group(directory, group)
    finally:
        group.rmdir()


if __name__ == "__main__":
    main()
