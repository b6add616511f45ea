"""The native module is missing, damaged or for another architecture: the program runs, one warning reports it, calls do
nothing."""

from __future__ import annotations

import ast
import inspect
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest
import spanprof
from spanprof import _spanprof as native
from spanprof import noop

PROGRAM = """
import asyncio, time
import spanprof
from spanprof import pyroscope

assert spanprof.start(service_name="x") is False
assert spanprof.update(sample_rate=5) is False
with spanprof.tag_wrapper({"a": "1"}):
    pass

@spanprof.tag_wrapper({"a": "1"})
def decorated():
    return 5

assert decorated() == 5

async def main():
    async with spanprof.tag_wrapper({"a": "1"}):
        pass

asyncio.run(main())
with spanprof.tag_wrapper(spanprof.Labels({"a": "1"}, b="2")):
    assert spanprof.bind(decorated)() == 5
assert asyncio.run(spanprof.bind(main)()) is None
assert spanprof.is_running() is False
pyroscope.add_thread_tag("a", "1")
pyroscope.remove_thread_tag("a", "1")
assert spanprof.stats() == {}
assert spanprof.flush() is True and spanprof.stop() is True
pyroscope.configure(application_name="x")
pyroscope.shutdown()
import spanprof.asgi, spanprof.wsgi
assert spanprof.wsgi.Middleware(lambda environ, start: [b"x"])({}, None) == [b"x"]
print("ran")
"""


@pytest.fixture
def copy_of_the_package(tmp_path):
    source = pathlib.Path(spanprof.__file__).parent
    copy = tmp_path / "spanprof"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (library,) = copy.glob("_spanprof*.so")
    return copy, library


def run(folder: pathlib.Path, program: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n" + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("damage", ["deleted", "empty", "garbage", "truncated", "other architecture"])
def test_a_program_runs_without_the_native_module_and_warns_once(copy_of_the_package, damage):
    copy, library = copy_of_the_package
    data = library.read_bytes()
    library.unlink()
    if damage == "empty":
        library.write_bytes(b"")
    elif damage == "garbage":
        library.write_bytes(b"not a library" * 1000)
    elif damage == "truncated":
        library.write_bytes(data[:4096])
    elif damage == "other architecture":
        library.write_bytes(data[:18] + b"\xb7\x00" + data[20:])
    done = run(copy.parent, PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ran"
    assert done.stderr.count("spanprof does nothing in this process") == 1


FREE_THREADED = (
    "sys.version = '3.14.1 free-threading build (main, Jan  1 2026, 00:00:00) [GCC 14]'",
    "CPython 3.14.1 is a free-threaded build",
)
PYPY = (
    "sys.implementation.name, sys.implementation.version = 'pypy', (7, 3, 11, 'final', 0)",
    "this is PyPy 7.3.11, and spanprof profiles CPython",
)


@pytest.mark.parametrize("imitation, reason", [FREE_THREADED, PYPY], ids=["free-threaded", "PyPy"])
def test_another_interpreter_is_declined_by_start_with_one_line(copy_of_the_package, imitation, reason):
    copy, library = copy_of_the_package
    library.unlink()
    # Such an interpreter loads libraries with another suffix, and pip installs the wheel without native code.
    done = run(
        copy.parent,
        f"""
        import os, sys
        {imitation}
        import spanprof

        assert spanprof.start(enabled=False) is False
        os.environ["SPANPROF_DISABLED"] = "1"
        assert spanprof.start() is False
        del os.environ["SPANPROF_DISABLED"]
        assert spanprof.start(service_name="x") is False
        assert spanprof.start(service_name="x") is False
        with spanprof.tag_wrapper({{"a": "1"}}):
            print("ran")
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ran"
    [line] = done.stderr.splitlines()
    assert line.startswith(f"spanprof: this process is not profiled: {reason}"), line


def test_calls_without_the_native_module_have_constant_cost(copy_of_the_package):
    copy, library = copy_of_the_package
    library.unlink()
    done = run(
        copy.parent,
        """
        import dis, inspect
        import spanprof
        from spanprof import noop

        # No loop, no allocation, no lock: each call is a constant.
        for name, function in vars(noop).items():
            if inspect.isfunction(function):
                names = {step.opname for step in dis.get_instructions(function)}
                assert not names & {"FOR_ITER", "JUMP_BACKWARD", "SETUP_WITH", "BEFORE_WITH"}, name
        assert spanprof.tag_wrapper({}) is spanprof.tag_wrapper({"a": 1})
        """,
    )
    assert done.returncode == 0, done.stderr


def test_the_noop_module_has_every_name_of_the_native_module():
    public = {name for name in vars(native) if not name.startswith("_")}
    replaced = {name for name in vars(noop) if not name.startswith("_")}
    assert public - replaced <= {"LinkToken", "BoundCall"}


def test_the_type_stubs_declare_every_name_of_the_native_module():
    stubs = ast.parse((pathlib.Path(spanprof.__file__).parent / "_spanprof.pyi").read_text())
    named = {node.name for node in stubs.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    named |= {node.target.id for node in stubs.body if isinstance(node, ast.AnnAssign)}
    assert {name for name in vars(native) if not name.startswith("_")} <= named
    assert named - {"Done"} <= set(vars(native))


def test_the_functions_of_the_noop_module_take_the_same_arguments():
    for name, function in vars(noop).items():
        real = getattr(native, name, None)
        if not inspect.isfunction(function) or real is None:
            continue
        try:
            parameters = inspect.signature(real).parameters
        except ValueError:
            continue
        assert list(parameters) == list(inspect.signature(function).parameters), name
