"""The objects in use that a killed process leaves behind: they are read with ``spanprof heap --last-crash``."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, sys, time
import spanprof

cache, kept = [], []

def fill_cache():
    for _ in range(100):
        cache.append(b"x" * 50_000)

def remember():
    kept.append(b"x" * 50_000)

def churn():
    b"x" * 50_000

# Almost every object is a sample, so sums of estimates are within a percent.
def start(**settings):
    directory = {"heap_peak_directory": os.environ["PEAK"]}
    return spanprof.start(
        heap=True, cpu=False, cpu_budget=0, heap_interval=8_192, service_name="leaky", **directory, **settings
    )

def leak(megabytes, path=kept):
    for _ in range(megabytes * 20):
        path.append(b"x" * 50_000)

def wait_for_peak(megabytes):
    # Records are written twice per second.
    for _ in range(600):
        if spanprof.stats()["heap.peak_bytes"] > megabytes * 900_000:
            return
        time.sleep(0.1)
    raise SystemExit(f"no record: {spanprof.stats()}")
"""

LEAKING = (
    PROGRAM
    + """
start()
fill_cache()
while True:
    for _ in range(20):
        remember()
        churn()
    time.sleep(0.01)
"""
)

KILLED = -signal.SIGKILL
#: Resident memory at which the leaking process is killed, bytes.
LIMIT = 160_000_000


def last_crash(path) -> dict:
    """The JSON of ``spanprof heap``."""
    command = [sys.executable, "-m", "spanprof", "heap", "--last-crash", str(path), "--json"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def resident_bytes(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def kill_at_limit(directory: pathlib.Path) -> tuple[int, int, float]:
    """Runs the leaking program until it is killed; returns its id, its resident bytes and the Unix time of its death."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPANPROF_")}
    environment.update(PEAK=str(directory), SPANPROF_FILE_DIRECTORY=str(directory / "profiles"))
    process = subprocess.Popen([sys.executable, "-c", LEAKING], env=environment)
    resident = 0
    while process.poll() is None and resident < LIMIT:
        time.sleep(0.01)
        resident = resident_bytes(process.pid)
    process.kill()
    killed_at = time.time()
    assert process.wait() == KILLED
    return process.pid, resident, killed_at


@pytest.fixture
def run_peak(run_target, tmp_path):
    """Runs a program with the directory of its heap at the peak; returns both."""

    def run(source: str, **arguments):
        target = run_target(PROGRAM + source, PEAK=str(tmp_path / "peak"), **arguments)
        return target, tmp_path / "peak"

    return run


@pytest.mark.parametrize("number", range(3))
def test_a_process_killed_at_a_memory_limit_leaves_the_leaking_function_first(tmp_path, number):
    pid, resident, killed_at = kill_at_limit(tmp_path)
    crash = last_crash(tmp_path)
    assert (crash["process_id"], crash["service"], crash["omitted_stacks"]) == (pid, "leaky", 0)
    assert crash["functions"]["rows"][0]["function"] == "remember"
    assert crash["lines"]["rows"][0]["line"] == LEAKING[: LEAKING.index("kept.append")].count("\n") + 1
    # A second at most on an idle machine (`live python`); a busy one may delay the drain thread.
    assert 0 <= killed_at - crash["time_unix_ns"] / 1e9 < 20
    assert crash["live_bytes"] == pytest.approx(crash["functions"]["total"], rel=0.01)
    assert 0 < crash["live_bytes"] < resident * 1.2
    assert crash["resident_bytes"] <= resident * 1.2


def test_a_clean_stop_leaves_no_file_and_the_profile_is_also_at_a_smaller_heap_that_of_the_peak(run_peak):
    _, directory = run_peak(
        """
start()
leak(40)
wait_for_peak(40)
kept.clear()
leak(5, cache)
time.sleep(1.5)
assert spanprof.stats()["heap.peak_bytes"] > 36_000_000
assert len(os.listdir(os.environ["PEAK"])) == 1
assert spanprof.stop()
"""
    )
    assert os.listdir(directory) == []


def test_objects_freed_after_the_peak_are_in_the_record_of_a_killed_process(run_peak):
    _, directory = run_peak(
        """
start()
leak(40)
wait_for_peak(40)
kept.clear()
time.sleep(1.5)
os.kill(os.getpid(), 9)
""",
        expect=KILLED,
    )
    assert last_crash(directory)["live_bytes"] == pytest.approx(40e6, rel=0.2)


def test_the_next_start_names_the_command_and_keeps_a_compact_file(run_peak):
    killed = "start(); leak(20); wait_for_peak(20); os.kill(os.getpid(), 9)"
    _, directory = run_peak(killed, expect=KILLED)
    (file,) = directory.iterdir()
    size = file.stat().st_size
    restarted, _ = run_peak(
        "import logging; logging.basicConfig(); start(); time.sleep(1); spanprof.flush(5); assert spanprof.stop()"
    )
    line = "(leaky) ended without stop() and left its heap"
    assert line in restarted.stderr and f"`spanprof heap --last-crash {directory}`" in restarted.stderr
    (kept,) = directory.iterdir()
    assert kept.suffix == ".crash" and kept.stat().st_size < size / 10
    assert last_crash(directory)["live_bytes"] == pytest.approx(20e6, rel=0.3)
    again, _ = run_peak("import logging; logging.basicConfig(); start(); time.sleep(1); assert spanprof.stop()")
    assert line not in again.stderr


def test_a_forked_child_has_its_own_file_and_the_running_parent_is_not_reported(run_peak):
    target, directory = run_peak(
        """
start()
leak(10)
wait_for_peak(10)
child = os.fork()
if child == 0:
    leak(40)
    wait_for_peak(40)
    os.kill(os.getpid(), 9)
assert os.waitpid(child, 0)[1] == 9
import json, subprocess
command = [sys.executable, "-m", "spanprof", "heap", "--last-crash", os.environ["PEAK"], "--json"]
crash = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
assert crash["process_id"] == child and 35e6 < crash["live_bytes"] < 70e6, crash["live_bytes"]
assert spanprof.stop()
print("done")
"""
    )
    assert target.stdout == "done\n"
    (file,) = directory.iterdir()
    assert file.suffix == ".peak"


def test_an_unusable_directory_prevents_the_start_in_code_and_is_a_warning_in_the_environment(run_target):
    target = run_target(
        """
import logging, os, resource
logging.basicConfig()
import spanprof
for directory in ["/proc/nowhere", os.devnull]:
    assert spanprof.start(heap=True, heap_peak_directory=directory) is False
# The limit of file sizes ends a process that writes beyond it.
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
os.environ["SPANPROF_HEAP_PEAK_DIRECTORY"] = "limited"
assert spanprof.start(heap=True)
assert spanprof.stats()["config.heap_peak_directory"] == ""
assert os.listdir("limited") == []
spanprof.stop()
"""
    )
    for directory in ["/proc/nowhere", "/dev/null", "/limited"]:
        assert f"{directory}` cannot be used" in target.stderr
    assert "RLIMIT_FSIZE" in target.stderr


@pytest.mark.parametrize("damage", ["truncate", "close", "remove"])
def test_a_file_that_the_host_damages_does_no_harm_and_is_replaced(run_peak, damage):
    _, directory = run_peak(
        f"""
start()
leak(10)
wait_for_peak(10)
(name,) = os.listdir(os.environ["PEAK"])
path = os.path.join(os.environ["PEAK"], name)
if "{damage}" == "truncate":
    os.truncate(path, 0)
elif "{damage}" == "remove":
    os.unlink(path)
else:
    (descriptor,) = [fd for fd in os.listdir("/proc/self/fd") if os.path.realpath("/proc/self/fd/" + fd) == path]
    os.close(int(descriptor))
    assert os.open("/dev/null", os.O_RDWR) == int(descriptor)
leak(20)
wait_for_peak(30)
leak(20)
wait_for_peak(50)
assert spanprof.stats()["heap.peak_errors"] == 1
os.kill(os.getpid(), 9)
""",
        expect=KILLED,
    )
    assert last_crash(directory)["live_bytes"] == pytest.approx(50e6, rel=0.2)
