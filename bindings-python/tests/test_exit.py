"""The end of a program: the last window arrives at a live receiver, and a dead one does not delay the end."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from receiver import never_answering, refused, serving

BURN = """
import atexit, os, sys, threading, time
import spanprof

def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        sum(range(500))

def last_work():
    burn(0.3)
"""

ENDINGS = {
    "end of the program": "last_work()",
    "sys.exit": "last_work()\nsys.exit(0)",
    "uncaught exception": "last_work()\nraise KeyError('mine')",
    "last work in a thread": "threading.Thread(target=last_work).start()",
    "stop()": "last_work()\nassert spanprof.stop() is True",
    "work in atexit": "atexit.register(last_work)",
}


@pytest.fixture(scope="module")
def receiver(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_last_window_arrives_complete(run_target, receiver, ending, protocol):
    service = f"{ending} over {protocol}"
    run_target(
        BURN + "spanprof.start()\n" + ENDINGS[ending],
        expect=1 if ending == "uncaught exception" else 0,
        SPANPROF_SERVICE_NAME=service,
        SPANPROF_ENDPOINT=receiver.url if protocol == "http/protobuf" else receiver.grpc_endpoint,
        SPANPROF_PROTOCOL=protocol,
        SPANPROF_STOP_TIMEOUT="10",
    )
    found = receiver.functions("--service", service)
    assert found["last_work"]["cum"] == pytest.approx(0.3e9, rel=0.3)


@pytest.mark.parametrize("ending", ["", "raise KeyError('mine')", "assert spanprof.stop() is False"])
@pytest.mark.parametrize("fault", ["refused", "never answering"])
def test_a_dead_receiver_delays_the_end_by_the_stop_timeout_at_most(run_target, ending, fault):
    # Registered before `start`, so that it runs after the profiler's exit hook.
    source = "import atexit, time\natexit.register(lambda: print(time.monotonic() - began))\n" + BURN
    with never_answering() as silent:
        target = run_target(
            source + f"spanprof.start()\nlast_work()\nbegan = time.monotonic()\n{ending}\n",
            expect=1 if "raise" in ending else 0,
            SPANPROF_ENDPOINT=refused() if fault == "refused" else silent,
            SPANPROF_STOP_TIMEOUT="1",
        )
    # Wide, since the machine may be oversubscribed; below the timeout of a request, 10 s.
    assert float(target.stdout) < 8


def test_a_dead_receiver_raises_nothing_and_blocks_nothing_while_running(run_target):
    with never_answering() as silent:
        target = run_target(
            BURN
            + """
spanprof.start(upload_interval=0.2, file_directory=None)
longest = 0.0
until = time.monotonic() + 2
while time.monotonic() < until:
    before = time.perf_counter()
    with spanprof.tag_wrapper({"a": "1"}):
        burn(0.01)
    longest = max(longest, time.perf_counter() - before)
stats = spanprof.stats()
assert stats["windows.closed"] >= 5
print(longest)
spanprof.stop()
""",
            SPANPROF_ENDPOINT=silent,
            SPANPROF_STOP_TIMEOUT="0.5",
        )
    # As above: a call that waits for the receiver takes 10 s.
    assert float(target.stdout) < 8


def test_flush_returns_whether_it_delivered_within_its_timeout(run_target, receiver):
    run_target(
        BURN + "spanprof.start()\nburn(0.2)\nassert spanprof.flush(20) is True\n",
        SPANPROF_ENDPOINT=receiver.url,
        SPANPROF_SERVICE_NAME="flushing",
    )
    run_target(
        BURN
        + """
spanprof.start()
burn(0.2)
began = time.monotonic()
assert spanprof.flush(0.3) is False
assert time.monotonic() - began < 8
""",
        SPANPROF_ENDPOINT=refused(),
        SPANPROF_STOP_TIMEOUT="0.2",
    )


def test_samples_taken_during_an_outage_of_the_receiver_arrive_after_it(run_target, tmp_path):
    address = refused()
    port = address.rsplit(":", 1)[1]
    target = run_target(
        BURN
        + f"""
import subprocess
spanprof.start(upload_interval=0.5)
last_work()
time.sleep(1)
server = subprocess.Popen([sys.executable, "-m", "spanprof", "serve", "--grpc", "0", "--http", "{port}",
                           "--dir", "served", "--quiet"], stdout=subprocess.PIPE)
server.stdout.readline()
burn(0.5)
assert spanprof.flush(20) is True, spanprof.stats()
server.terminate()
server.wait()
""",
        SPANPROF_ENDPOINT=address,
    )
    assert target.returncode == 0
    top = subprocess.run(
        [sys.executable, "-m", "spanprof", "top", str(tmp_path / "served"), "--json", "-n", "0"], capture_output=True, text=True
    )
    rows = {row["function"]: row for row in json.loads(top.stdout)["rows"]}
    assert "last_work" in rows


def test_a_program_shorter_than_the_upload_interval_delivers_its_window(run_target):
    began = time.monotonic()
    target = run_target(BURN + "spanprof.start(upload_interval=600)\nlast_work()\n")
    assert target.profiles().through("last_work")
    assert time.monotonic() - began < 30


def test_a_log_thread_that_begins_while_the_interpreter_ends_ends_too(run_target):
    run_target(
        """
import atexit
import spanprof
from spanprof.native import native

atexit.register(lambda: [native.start_thread(int) for _ in range(20)])
objects = [[object() for _ in range(10)] for _ in range(30_000)]
"""
    )


def test_programs_that_end_while_a_log_line_is_pending_end_cleanly(run_target):
    # The first window closes, and its line is logged, while the interpreter is finalized.
    for tenths in range(12):
        target = run_target(
            BURN
            + f"""
import logging
logging.basicConfig(level=logging.INFO)
spanprof.start(upload_interval=0.1, sampel_rate=1)
spanprof.start()
burn({0.05 + tenths / 100})
"""
        )
        assert "sampel_rate" in target.stderr


def test_a_reading_command_names_the_cause_when_the_server_has_no_tls(receiver):
    command = [sys.executable, "-m", "spanprof", "top", receiver.url.replace("http://", "https://")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    assert "write http://" in done.stderr
