"""Finds the native half of the package once; everything else here asks for ``native``."""

from __future__ import annotations

import warnings
from types import ModuleType

native: ModuleType
#: Why the native module could not be loaded; empty when it was.
missing_because: str = ""

try:
    from . import _spanprof as native
except Exception as error:  # A damaged library raises more than ImportError, and none of it may reach the host.
    from . import absent as native

    missing_because = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"spanprof does nothing in this process: its native module could not be loaded ({missing_because}). "
        "Install the wheel for this platform and Python.",
        RuntimeWarning,
        stacklevel=3,
    )
