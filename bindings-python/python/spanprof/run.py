"""``spanprof run``: profiles an unmodified program, as ``python app.py`` or ``python -m module`` would run it.

    spanprof run [--KEY=VALUE ...] app.py [ARGUMENTS ...]
    spanprof run [--KEY=VALUE ...] -m module [ARGUMENTS ...]

The keys are those of the configuration, with ``-`` or ``_``. Not here: what they mean (native core).
"""

from __future__ import annotations

import io
import os
import runpy
import signal
import sys
import types
from typing import Any

from .native import native

_USAGE = """\
usage: spanprof run [--KEY=VALUE ...] PROGRAM.py [ARGUMENTS ...]
       spanprof run [--KEY=VALUE ...] -m MODULE [ARGUMENTS ...]

Runs a Python program and profiles it. Keys (also as SPANPROF_* variables):
"""


def main(arguments: list[str]) -> int:
    """Runs what the arguments name; returns the exit code when the program itself does not end the process."""
    config: dict[str, Any] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        option = rest.pop(0)
        if option in ("-h", "--help"):
            # No program runs: a closed pipe may end the process, as it ends the other verbs.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            print(_usage())
            return 0
        key, equals, value = option[2:].partition("=")
        if not option.startswith("--") or not key:
            return _refuse(f"unknown option `{option}`")
        if not equals:
            return _refuse(f"`{option}` needs a value: `{option}=VALUE`")
        config[key.replace("-", "_")] = value
    if not rest or rest == ["-m"]:
        return _refuse("no program was named")

    from .lifecycle import start_quietly

    if rest[0] == "-m":
        sys.argv = [rest[1], *rest[2:]]
        # `python -m` looks in the current directory first.
        sys.path.insert(0, os.getcwd())
        _fresh_main()
        start_quietly(config)
        _run_module(rest[1])
    else:
        if not os.path.exists(rest[0]):
            return _refuse(f"there is no file `{rest[0]}`")
        sys.argv = rest
        start_quietly(config)
        _run_path(rest[0])
    return 0


def _usage() -> str:
    lines = [f"  --{name.replace('_', '-')}={type_name}: {doc}" for name, type_name, doc in native.config_keys()]
    return _USAGE + "\n".join(lines)


def _refuse(message: str) -> int:
    print(f"spanprof run: {message}\nexpected: spanprof run [--KEY=VALUE ...] PROGRAM.py|-m MODULE [ARGUMENTS ...]", file=sys.stderr)
    return 2


def _fresh_main() -> types.ModuleType:
    # The program's __main__, not ours: threads, pickling and multiprocessing look names up in it until the process ends.
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    return module


def _run_module(name: str) -> None:
    # What `python -m` itself calls: executes in the present __main__, sets argv[0] to the module's file.
    runpy._run_module_as_main(name, alter_argv=True)  # type: ignore[attr-defined]


def _run_path(path: str) -> None:
    if os.path.isdir(path) or not _is_source(path):
        sys.path.insert(0, "")
        runpy.run_path(path, run_name="__main__")
        return
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    module = _fresh_main()
    module.__file__ = path
    module.__dict__["__cached__"] = None
    with io.open_code(os.path.abspath(path)) as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)


def _is_source(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4)[:2] != b"PK" and not path.endswith((".pyc", ".pyz"))
