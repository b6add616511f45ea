"""The end of a program: the last window arrives at a live receiver, and a dead one does not delay the end."""

from __future__ import annotations

import pytest
from receiver import never_answering, refused, serving

BURN = """
import atexit, os, sys, threading, time
import spanprof

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
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
    functions = receiver.functions("--service", service)
    assert functions["last_work"]["cum"] == pytest.approx(0.3e9, rel=0.3)


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
