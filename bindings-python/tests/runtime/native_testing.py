"""Imports the runtime's functions for tests, and reads the interpreter's own stacks. `cargo xtask test` runs the checks on
each interpreter, with the wheel that it builds for tests (feature `testing`). By hand, without the package and with the
library as `_spanprof.abi3.so` on PYTHONPATH:

    cargo build -p spanprof-python --features extension-module,testing
    python -m unittest discover -s bindings-python/tests/runtime -p 'check_*.py'

Not here: tests of the engine.
"""

import contextvars
import importlib.util
import sys

if importlib.util.find_spec("spanprof"):
    from spanprof._spanprof import _testing as runtime
else:
    from _spanprof import _testing as runtime

runtime.start()

#: The context variable of these tests.
variable = contextvars.ContextVar("spanprof.tests")
assert runtime.use_context_variable(variable) == "context_variable"

HAS_QUALNAMES = sys.version_info >= (3, 11)


def name_of(code):
    """The expected function name of a frame of `code`."""
    return code.co_qualname if HAS_QUALNAMES else code.co_name


def stack_of(frame):
    """The interpreter's own stack of a frame: (name, file, first line, line) of it and its callers, leaf first."""
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append((name_of(code), code.co_filename, code.co_firstlineno, frame.f_lineno or 0))
        frame = frame.f_back
    return frames


def own_stack():
    """The interpreter's own stack of the caller."""
    return stack_of(sys._getframe(1))


def without_columns(frames):
    return [frame[:4] for frame in frames]
