"""Subinterpreters: start() logs the reason, and the main interpreter is still profiled, with its labels."""

from __future__ import annotations

import pytest

INSIDE = """
import spanprof
print("inside:", spanprof.start(service_name="inside"))
with spanprof.tag_wrapper({"a": "1"}):
    sum(range(1000))
"""

PROGRAM = """
import sys, time
import spanprof

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters


def create(kind):
    if hasattr(interpreters, "new_config"):
        return interpreters.create(kind)
    return interpreters.create(isolated=kind == "isolated")


run = getattr(interpreters, "exec", None) or interpreters.run_string


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


main_first, kind, inside = sys.argv[1] == "main_first", sys.argv[2], sys.argv[3]
if main_first:
    spanprof.start(service_name="main")
one = create(kind)
failed = run(one, inside)
assert failed is None, failed
interpreters.destroy(one)
if not main_first:
    spanprof.start(service_name="main")
assert "samples.cpu" in spanprof.stats()  # it runs
with spanprof.tag_wrapper({"where": "after"}):
    burn(0.5)
assert spanprof.stop() is True
"""


@pytest.mark.parametrize("order", ["main_first", "inside_first"])
@pytest.mark.parametrize("kind", ["legacy", "isolated"])
def test_a_subinterpreter_is_rejected_and_the_main_one_is_profiled(run_target, kind, order):
    target = run_target(PROGRAM, order, kind, INSIDE)
    assert "inside: False" in target.stdout, target.stdout
    expected = "spanprof: this process is not profiled: start() was called in "
    assert expected in target.stderr and "subinterpreter" in target.stderr, target.stderr
    assert "RuntimeWarning" not in target.stderr, target.stderr
    # More than twenty samples are expected; one shows that the main interpreter's labels are still read.
    assert target.profiles().by_label("where")["after"] > 0
