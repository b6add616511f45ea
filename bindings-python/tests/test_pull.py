"""Profiles are pulled from a program, from each of its forked workers, and after an update; nothing is left after its end."""

from __future__ import annotations

FORKED = """
import os, urllib.error, urllib.request
import spanprof

def get(address, path):
    with urllib.request.urlopen(f"http://{address}/debug/pprof/{path}", timeout=60) as response:
        return response.read()

def is_refused(address):
    try:
        get(address, "")
    except urllib.error.URLError as error:
        return isinstance(error.reason, ConnectionRefusedError)
    return False

spanprof.start(pull="127.0.0.1:0", destinations=[], service_name="pulled")
own = spanprof.stats()["pull.address"]
assert f"Process {os.getpid()}." in get(own, "").decode()
reading, writing = os.pipe()
release, hold = os.pipe()
if os.fork() == 0:
    os.close(hold)
    address = spanprof.stats()["pull.address"]
    os.write(writing, address.encode())
    os.read(release, 1)
    os._exit(0)
os.close(release)
workers = os.read(reading, 100).decode()
assert workers != own
assert f"Process {os.getpid()}." not in get(workers, "").decode()
assert get(workers, "profile?seconds=0.1")[:2] == b"\\x1f\\x8b"
spanprof.stop()
# The worker still runs, and has closed its copy of the parent's socket.
assert is_refused(own), own
get(workers, "")
os.close(hold)
os.wait()
assert is_refused(workers), workers
print("pulled")
"""

SHARED_PORT = """
import os, signal, urllib.request
import spanprof

def process(address):
    with urllib.request.urlopen(f"http://{address}/debug/pprof/", timeout=60) as response:
        return response.read().decode().split("Process ")[1].split(".")[0]

spanprof.start(pull="127.0.0.1:0", destinations=[])
address = spanprof.stats()["pull.address"]
spanprof.stop()
spanprof.start(pull=address, destinations=[])
reading, writing = os.pipe()
workers = []
for _ in range(3):
    worker = os.fork()
    if worker == 0:
        os.write(writing, b"." if spanprof.stats()["pull.address"] == address else b"?")
        signal.pause()
    workers.append(worker)
ready = b""
while len(ready) < 3:
    ready += os.read(reading, 3)
assert ready == b"..."
# The system chooses a process for each connection: that all 300 reach one of four has a probability of 4 ** -299.
assert len({process(address) for _ in range(300)}) > 1
for worker in workers:
    os.kill(worker, signal.SIGKILL)
for worker in workers:
    os.waitpid(worker, 0)
assert {process(address) for _ in range(20)} == {str(os.getpid())}
spanprof.stop()
print("shared")
"""

CLOSED_DESCRIPTORS = """
import os, time, urllib.error, urllib.request
import spanprof

def get(path):
    with urllib.request.urlopen(f"http://{address}/debug/pprof/{path}", timeout=60) as response:
        return response.read()

spanprof.start(pull="127.0.0.1:0", destinations=[])
address = spanprof.stats()["pull.address"]
# The drain thread has done the work of its start then.
get("profile?seconds=0.01")
os.closerange(3, 256)
kept = os.open("/dev/null", os.O_RDONLY)
for _ in range(10):
    try:
        get("")
        break
    except urllib.error.HTTPError:
        raise
    except OSError:
        # The connection that wakes the listener is reset; others are refused until it listens again.
        time.sleep(0.05)
assert spanprof.stats()["pull.rebound"] == 1, spanprof.stats()
os.fstat(kept)
spanprof.stop()
print("rebound")
"""


def test_a_program_that_closes_its_descriptors_is_pulled_again(run_target):
    assert "rebound" in run_target(CLOSED_DESCRIPTORS).stdout


def test_each_forked_worker_is_pulled_at_its_own_port(run_target):
    assert "pulled" in run_target(FORKED).stdout


def test_workers_share_a_configured_port_and_a_killed_one_receives_no_pull(run_target):
    assert "shared" in run_target(SHARED_PORT).stdout
