"""Finds the native half of the package once; everything else here asks for ``native``."""

from __future__ import annotations

import importlib
import os
from importlib.machinery import PathFinder
from types import ModuleType

_NAME = "spanprof._spanprof"


def _refuse_cut_file() -> None:
    # A library cut short (full disk, broken copy) kills the process inside the system's loader: look before loading.
    # Not by importlib.util, which loads typing and re on some versions.
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
            raise ImportError(f"{spec.origin} is cut short: {length} bytes")


native: ModuleType
#: Why the native module could not be loaded; empty when it was.
missing_because: str = ""

try:
    _refuse_cut_file()
    native = importlib.import_module(_NAME)
except Exception as error:  # A damaged library raises more than ImportError, and none of it may reach the host.
    from . import absent as native

    import warnings

    missing_because = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"spanprof does nothing in this process: its native module could not be loaded ({missing_because}). "
        "Install the wheel for this platform and Python.",
        RuntimeWarning,
        stacklevel=3,
    )
