"""Subinterpreters, and interpreters that are initialized again: start() logs the reason, and the main interpreter is still profiled, with
its labels."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest
import spanprof

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


EMBEDDING = """
#include <Python.h>
int main(int count, char **arguments) {
    for (int life = 1; life <= 3; life++) {
        Py_Initialize();
        PySys_SetObject("life", PyLong_FromLong(life));
        if (PyRun_SimpleString(arguments[1]) != 0 || Py_FinalizeEx() != 0) return 1;
    }
    return 0;
}
"""
LIFE = """
import sys, threading
if sys.life != 2:
    import spanprof
    try:
        is_running = spanprof.start(profiles="all", threads=True, destinations=[])
    except spanprof.SpanprofError as error:
        is_running = "Py_Finalize" not in str(error)
    assert is_running == (sys.life == 1)
    thread = threading.Thread(target=sum, args=(range(10**6),))
    thread.start()
    thread.join()
print(sys.life, [{} for _ in range(100000)][0])
"""


@pytest.mark.skipif(not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="no shared library of Python")
@pytest.mark.skipif(not os.path.exists(f"{sysconfig.get_config_var('INCLUDEPY')}/Python.h"), reason="no headers of Python")
def test_a_program_that_initializes_the_interpreter_again_is_profiled_in_its_first_life_only(tmp_path):
    (tmp_path / "embeds.c").write_text(EMBEDDING)
    variables = sysconfig.get_config_vars()
    libraries = [f"-L{variables['LIBDIR']}", f"-Wl,-rpath,{variables['LIBDIR']}", f"-lpython{variables['LDVERSION']}"]
    command = ["cc", "-o", "embeds", "embeds.c", f"-I{variables['INCLUDEPY']}", *libraries]
    subprocess.run(command, check=True, cwd=tmp_path)
    path = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(spanprof.__file__)), *sys.path]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHOME": sys.base_prefix}
    done = subprocess.run([tmp_path / "embeds", LIFE], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1 {}\n2 {}\n3 {}\n"), done
