"""The demo of the command line: a new user sees one slow request explained, from the wheel alone."""

import os
import subprocess
import sys


def test_the_demo_explains_its_slowest_request() -> None:
    command = [sys.executable, "-m", "spanprof", "demo", "--no-open", "--once"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPANPROF_")}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0, result.stderr
    for expected in ("GET /checkout/{order}", "it took 2.", "Waiting (off CPU)", "Sleep", "call_payment_provider", "/?span_id="):
        assert expected in result.stdout, result.stdout + result.stderr
