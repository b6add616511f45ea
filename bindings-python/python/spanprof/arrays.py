"""numpy's arrays in the heap profile: sets the profile's handler in the context that imports numpy.

``start`` and ``update`` set it in their own context, and each new thread in its own (``threads``). Not here: the handler (native
core).
"""

from __future__ import annotations

from .imports import when_imported
from .native import native

_installed = False


def install() -> None:
    """Sets the handler when numpy is imported later."""
    global _installed
    if not _installed:
        # The module's name since numpy 2.0, and before.
        for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
            when_imported(name, lambda module: native.hook_arrays())
        _installed = True
