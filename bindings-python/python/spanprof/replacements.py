"""The attributes of the standard library that the profiler replaces, in one table.

A program must not notice it: a replacement has the kind, the name, the module and the signature of the original, and is pickled where
that is. ``tests/test_replacements.py`` checks each row, and that no other attribute is replaced. Not here: what replacements do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

#: (owner, name, original, replacement) of each attribute that is replaced now or was before.
TABLE: list[tuple[Any, str, Any, Any]] = []


def replace(owner: Any, name: str, original: Any, replacement: Any) -> None:
    """Replaces an attribute for the rest of the process."""
    TABLE.append((owner, name, original, replacement))
    setattr(owner, name, replacement)


class _Module:
    """Unpickled as the module of this name; modules are not pickled themselves."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple:
        import importlib

        return importlib.import_module, (self.name,)


#: Module and attribute of each replacement that is pickled by reference.
_references: dict[Any, tuple[str, str]] = {}


def _reduced(value: Any) -> Any:
    from types import BuiltinFunctionType

    reference = _references.get(value)
    if reference is not None:
        return getattr, (_Module(reference[0]), reference[1])
    return value.__reduce__() if isinstance(value, BuiltinFunctionType) else value.__qualname__


def pickle_by_reference(replacement: Any, module: str, name: str) -> None:
    """Pickles a replacement without Python code as an attribute of ``module``, in every pickler that uses ``copyreg``. Its own name
    is that of the original in another module, which pickle would not find to be the same object. Stays when the replacement is taken
    back, since the program may have kept one."""
    import copyreg

    _references[replacement] = module, name
    copyreg.dispatch_table.setdefault(type(replacement), _reduced)
