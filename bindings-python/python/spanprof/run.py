"""``spanprof run``: runs and profiles an unmodified program, as ``python app.py`` or ``python -m module`` would run it.

    spanprof run [-o FILE] [--KEY=VALUE ...] app.py [ARGUMENTS ...]
    spanprof run [-o FILE] [--KEY=VALUE ...] -m module [ARGUMENTS ...]

``--open`` shows a flame graph, or the file of ``-o``, in a browser at the end. The keys are those of the configuration, with ``-`` or ``_``; ``-o`` is ``--output``. One line on standard error reports the
outcome. Not here: the keys (native core).
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import runpy
import shutil
import signal
import sys
import tempfile
import textwrap
import types
from typing import Any, Callable

from .native import missing_because, native

_USAGE = "spanprof run [-o FILE] [--open] [--KEY=VALUE ...] PROGRAM.py|-|-m MODULE [ARGUMENTS ...]"

_HELP = f"""\
Run a Python program and profile it

Usage: {_USAGE}

Flags:
  -o <FILE>      write a flame graph (.html), pprof (.pb.gz) or folded stacks (.folded) at the end; without it, profiles go to --endpoint
      --open     show the file in a browser at the end; without -o, a flame graph
  -h, --help     this text

Keys as --KEY=VALUE, also as SPANPROF_KEY; docs/reference/configuration.md explains them:
"""

# Headings of the help, each with its keys. A name also stands for the keys that begin with it; the longest name wins.
_GROUPS = {
    "Program": "enabled service_name resource_attributes tags profiles config_file",
    "CPU and wall-clock samples": "sample_rate clock cpu wall",
    "Memory": "heap gc",
    "Waits and threads": "lock off_cpu threads",
    "Output and receiver": "output endpoint protocol headers compression timeout certificate client insecure destinations"
    " link",
    "Files": "file",
    "Retention of slow requests": "retention tail",
    "Windows": "upload_interval keep_timestamps max_stack_depth",
    "Limits of the cost": "cpu_budget sample_rate_max adaptive load_shedding cpu_duty_cycle heap_duty_cycle",
    "Delivery": "queue buffer max_profile_size stop_timeout",
    "Metrics": "metrics",
    "Redaction": "redaction",
    "Pull": "pull",
}
_OTHER = "Integration"


def main(arguments: list[str]) -> int:
    """Runs the program that the arguments name; returns the exit code if the program does not end the process itself."""
    config: dict[str, Any] = {}
    rest = list(arguments)
    opens = False
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-m"):
        option = rest.pop(0)
        if option in ("-h", "--help"):
            # No program runs, so a closed pipe may end the process, as in the other commands.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            print(_usage())
            return 0
        if option.startswith("-o"):
            if option == "-o" and not rest:
                return _refuse("`-o` needs a file: `-o flame.html`")
            config["output"] = option[2:] or rest.pop(0)
            continue
        if option == "--open":
            opens = True
            continue
        key, equals, value = option[2:].partition("=")
        if not option.startswith("--") or not key:
            return _refuse(f"unknown option `{option}`")
        if not equals:
            return _refuse(f"`{option}` needs a value: `{option}=VALUE`")
        config[key.replace("-", "_")] = value
    if not rest or rest == ["-m"]:
        return _refuse("no program was named")
    if opens:
        if "output" not in config:
            config["output"] = os.path.join(tempfile.mkdtemp(prefix="spanprof-"), "flame.html")
        if not str(config.get("output", "")).endswith((".html", ".svg")):
            return _refuse("`--open` needs `-o flame.html`: a browser shows HTML and SVG")
        # Before the profiler's own function, which therefore writes the file first.
        atexit.register(_open, os.path.abspath(config["output"]), os.getpid())

    if rest[0] == "-m":
        sys.argv = [rest[1], *rest[2:]]
        # `python -m` searches the current directory first.
        sys.path.insert(0, os.getcwd())
        _fresh_main()
        _start(config)
        run_program: Callable[[], None] = functools.partial(_run_module, rest[1])
    else:
        if rest[0] != "-" and not os.path.exists(rest[0]):
            return _refuse(f"there is no file `{rest[0]}`")
        sys.argv = rest
        _start(config)
        run_program = _run_stdin if rest[0] == "-" else functools.partial(_run_path, rest[0])
    try:
        run_program()
    except SystemExit:
        raise
    except BaseException:
        _hide_launcher()
        raise
    return 0


def _start(config: dict[str, Any]) -> None:
    from . import host_log, lifecycle
    from .errors import SpanprofError

    host_log.print_outcome_of_run()
    try:
        # Another reason than a switch is in the log.
        reason = "" if lifecycle.start(**config) else _disabled_reason()
    except SpanprofError as error:
        reason = str(error)
    if reason:
        _report(f"not profiled: {reason}")


def _open(path: str, process: int) -> None:
    if os.getpid() != process or not os.path.exists(path):
        return
    import pathlib
    import webbrowser

    address = pathlib.Path(path).as_uri()
    # Without a display, a browser of the terminal would take it from the program that comes next.
    has_display = sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not (has_display and webbrowser.open(address)):
        _report(f"no browser was found; open {address}")


def _disabled_reason() -> str:
    if missing_because:
        return f"the native module could not be loaded ({missing_because})"
    switches = [name for name in ("SPANPROF_DISABLED", "OTEL_SDK_DISABLED") if os.environ.get(name)]
    if native.setting("enabled") is not None:
        switches.append("enabled=false")
    return f"disabled by {switches[0]}" if switches else ""


def _hide_launcher() -> None:
    # The interpreter prints the exception and selects the exit code; the traceback starts at the program's first frame.
    excepthook = sys.excepthook

    def without_launcher(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
        program, entry = traceback, traceback
        while entry is not None:
            if entry.tb_frame.f_code.co_filename == __file__:
                program = entry.tb_next
            entry = entry.tb_next
        excepthook(kind, error.with_traceback(program), program)

    sys.excepthook = without_launcher


def _usage() -> str:
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    return _help(native.config_keys(), columns)


def _help(keys: list[tuple[str, str, str]], columns: int) -> str:
    """The usage with the names of the keys by heading, wrapped to ``columns``; 0 for one line each."""
    groups: dict[str, list[str]] = {heading: [] for heading in (*_GROUPS, _OTHER)}
    for name, _type, _doc in keys:
        groups[_heading(name)].append(name.replace("_", "-"))
    lines = [*_HELP.splitlines(), *(f"  {heading}: {' '.join(names)}" for heading, names in groups.items() if names)]
    return "\n".join(_wrapped(line, columns, " " * 6 if line.startswith(" ") else "") for line in lines)


def _heading(key: str) -> str:
    names = [(name, heading) for heading, names in _GROUPS.items() for name in names.split()]
    matching = [found for found in names if f"{key}_".startswith(f"{found[0]}_")]
    return max(matching, key=lambda found: len(found[0]), default=("", _OTHER))[1]


def _wrapped(line: str, columns: int, indent: str) -> str:
    if columns <= len(indent) + 20:
        return line
    return textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _refuse(message: str) -> int:
    _report(f"{message}\n  Usage: {_USAGE}")
    return 2


def _report(message: str) -> None:
    # For None, that is a closed standard error, `print` would write to standard output.
    if sys.stderr is not None:
        print(f"spanprof run: {message}", file=sys.stderr)


def _fresh_main() -> types.ModuleType:
    # The program needs its own __main__: threads, pickling and multiprocessing look names up in it until the process ends.
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    return module


def _run_module(name: str) -> None:
    # The function that `python -m` calls: executes in the current __main__ and sets argv[0] to the module's file.
    runpy._run_module_as_main(name, alter_argv=True)  # type: ignore[attr-defined]


def _run_path(path: str) -> None:
    if os.path.isdir(path) or not _is_source(path):
        sys.path.insert(0, "")
        runpy.run_path(path, run_name="__main__")
        return
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    # Absolute, as in Python since 3.9; symbolic links are not resolved.
    path = os.path.abspath(path)
    module = _fresh_main()
    module.__file__ = path
    module.__dict__["__cached__"] = None
    with io.open_code(path) as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)


def _run_stdin() -> None:
    sys.path.insert(0, "")
    source = sys.stdin.buffer.read()
    exec(compile(source, "<stdin>", "exec", dont_inherit=True), _fresh_main().__dict__)


def _is_source(path: str) -> bool:
    if not os.path.isfile(path):
        # A pipe can be read only once.
        return True
    with open(path, "rb") as file:
        return file.read(4)[:2] != b"PK" and not path.endswith((".pyc", ".pyz"))
