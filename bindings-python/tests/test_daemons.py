"""Programs that become daemons: they fork twice, close all descriptors, the profiler's included, and open their own files."""

from __future__ import annotations

import re

import pytest
from receiver import serving, wait_until

DAEMON = """
import os, sys, time
import spanprof

def in_daemon():
    start = time.thread_time()
    while time.thread_time() - start < 0.5:
        sum(range(500))

def become_daemon():
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)

spanprof.start(upload_interval=0.3, **{settings})
done_read, done_write = os.pipe()
if os.fork():
    os.close(done_write)
    assert os.read(done_read, 100) == b"ended", "the daemon failed"
    sys.exit(0)
become_daemon()
os.dup2(done_write, 300)
{before_closing}
os.closerange(3, 256)
files = [open(f"theirs-{{n}}", "w+b", buffering=0) for n in range(60)]
for _ in range(3):
    in_daemon()
delivered = spanprof.stop()
time.sleep(0.2)
for file in files:
    assert file.read() == b"", "the profiler wrote into a file of the program"
    file.close()
assert delivered, spanprof.stats()
os.write(300, b"ended")
"""


@pytest.mark.parametrize("clock", ["thread_timer", "auto"])
@pytest.mark.parametrize("before_closing", ["", "in_daemon(); time.sleep(0.3)"])
def test_a_daemon_that_closes_every_descriptor_is_profiled_and_keeps_its_files(run_target, tmp_path, clock, before_closing):
    with serving(tmp_path / "store") as receiver:
        target = run_target(
            DAEMON.format(settings={"endpoint": receiver.url, "clock": clock}, before_closing=before_closing),
            SPANPROF_FILE_DIRECTORY="",
            # CPython 3.12 and later warns at each fork if there is any other thread, the profiler's included.
            PYTHONWARNINGS="default,ignore:This process:DeprecationWarning",
        )
        assert re.fullmatch(r"spanprof: stopped after [^\n]*\n", target.stderr), target.stderr
        expected = 2.0 if before_closing else 1.5
        wait_until(lambda: receiver.functions().get("in_daemon", {}).get("cum", 0) > 0)
        seconds = receiver.functions()["in_daemon"]["cum"] / 1e9
        assert seconds == pytest.approx(expected, rel=0.2)
