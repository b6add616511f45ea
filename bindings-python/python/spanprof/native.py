"""Loads the native module of the package, or its no-op replacement; the other modules import ``native`` from here."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from types import ModuleType

from .interruptions import is_interruption

_NAME = "spanprof._spanprof"
#: Interpreters other than CPython, by ``sys.implementation.name``.
_OTHERS = {"pypy": "PyPy", "graalpy": "GraalPy"}


def _refuse_truncated_file() -> None:
    # A truncated library (full disk, broken copy) kills the process in the dynamic loader, so it is checked before loading.
    # Not by importlib.util, which imports typing and re on some versions.
    spec = PathFinder.find_spec(_NAME, [os.path.dirname(__file__)])
    if spec is None or not spec.origin or not os.path.isfile(spec.origin):
        return
    with open(spec.origin, "rb") as file:
        header = file.read(64)
        length = os.fstat(file.fileno()).st_size
    if header[:5] == b"\x7fELF\x02" and len(header) == 64:
        sections_at = int.from_bytes(header[0x28:0x30], "little")
        size, count = int.from_bytes(header[0x3A:0x3C], "little"), int.from_bytes(header[0x3C:0x3E], "little")
        if length < sections_at + size * count:
            raise ImportError(f"{spec.origin} is truncated: {length} bytes")


native: ModuleType
#: Why the native module could not be loaded; empty when it was, and where ``start`` gives the reason.
missing_because: str = ""

try:
    _refuse_truncated_file()
    native = importlib.import_module(_NAME)
except Exception as error:  # A damaged library raises other exceptions than ImportError; none may reach the host.
    if is_interruption(error):
        raise
    from . import noop as native

    import warnings

    # These interpreters cannot load the module from any wheel: `start` gives the reason, and there is no warning here.
    if isinstance(error, ImportError) and "subinterpreter" in str(error):
        native.declined = "start() was called in a subinterpreter; call it in the main interpreter, which spanprof profiles only"
    elif isinstance(error, ImportError) and "initialized again" in str(error):
        native.declined = "start() was called after Py_Finalize and another Py_Initialize; keep the interpreter initialized"
    elif sys.implementation.name != "cpython":
        interpreter = _OTHERS.get(sys.implementation.name, sys.implementation.name)
        version = ".".join(map(str, sys.implementation.version[:3]))
        native.declined = f"this is {interpreter} {version}, and spanprof profiles CPython; run the program with CPython"
    elif "free-threading build" in sys.version:
        native.declined = (
            f"CPython {sys.version.split()[0]} is a free-threaded build; run the program on the standard build of the same version"
        )
    else:
        missing_because = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"spanprof does nothing in this process: its native module could not be loaded ({missing_because}). "
            "Install the wheel for this platform and Python.",
            RuntimeWarning,
            stacklevel=3,
        )

native.set_interruption_test(is_interruption)
