"""The runtime's doors for tests, and what the tests share. `cargo xtask test` runs them on each interpreter, with the
wheel that it builds for tests (feature `testing`). By hand, with no package at all and the library as
`_spanprof.abi3.so` on PYTHONPATH:

    cargo build -p spanprof-python --features extension-module,testing
    python -m unittest discover -s bindings-python/tests/runtime -p 'check_*.py'

Not here: the engine, which has its own tests.
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
    """The name that a frame of `code` must show."""
    return code.co_qualname if HAS_QUALNAMES else code.co_name


def stack_of(frame):
    """What the interpreter says of a frame and its callers: (name, file, first line, line), leaf first."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append((name_of(code), code.co_filename, code.co_firstlineno, frame.f_lineno or 0))
        frame = frame.f_back
    return found


def own_stack():
    """The caller's stack, as the interpreter says."""
    return stack_of(sys._getframe(1))


def without_columns(frames):
    return [frame[:4] for frame in frames]
