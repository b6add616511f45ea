"""The ``spanprof`` command: ``run`` and ``demo`` are implemented in Python, every other command by the native command line."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line of this process; returns its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        from . import run

        return run.main(arguments[1:])
    if arguments[:1] == ["demo"]:
        from . import demo

        return demo.main(arguments[1:])
    from .native import native

    # The native command line does not return to the interpreter while it runs, so Ctrl-C ends it directly. SIGPIPE stays ignored:
    # a server may close a connection while a request is written, and that is an error with a message.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return native.cli_main(arguments)


if __name__ == "__main__":
    sys.exit(main())
