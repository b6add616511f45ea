"""The ``spanprof`` command: ``run`` is implemented in Python, every other command by the native command line."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line of this process; returns its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        from . import run

        return run.main(arguments[1:])
    from .native import native

    # The native command line does not return to the interpreter while it runs, so Ctrl-C and a closed pipe end it directly.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    code = native.cli_main(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print("\nIn Python also:\n  run         Run a Python program and profile it: `spanprof run app.py`, `spanprof run -m module`")
    return code


if __name__ == "__main__":
    sys.exit(main())
