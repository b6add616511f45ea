"""Import hooks: calls a function when a module has been imported, now if it is loaded, else right after its import.

The profiler never imports the modules it wraps (executors, OpenTelemetry, multiprocessing). Not here: the wrapping. A callback
never raises into the importing program, and the module's loader and spec are restored.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType

from .interruptions import is_interruption

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable, Sequence

    Callback = Callable[[ModuleType], None]

_callbacks: dict[str, list[Callback]] = {}
#: What a warning was logged for.
_failed: set[str] = set()
_searching = threading.local()


def warn(text: str) -> None:
    """Logs a warning; ``host_log``, which uses this module, replaces it."""


def when_imported(name: str, callback: Callback) -> None:
    """Calls ``callback(module)`` once, as soon as the module ``name`` is loaded."""
    module = loaded(name)
    if module is not None:
        call(callback, module, f"the module {name}")
        return
    _callbacks.setdefault(name, []).append(callback)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def loaded(name: str) -> ModuleType | None:
    """The module ``name`` if its import is complete."""
    module = sys.modules.get(name)
    is_complete = not getattr(getattr(module, "__spec__", None), "_initializing", False)
    return module if is_complete else None


def call(callback: Callable[[Any], None], argument: Any, name: str) -> None:
    """Calls ``callback(argument)``; an error becomes one warning per name."""
    try:
        callback(argument)
    except Exception as error:
        if is_interruption(error):
            raise
        if name not in _failed:
            _failed.add(name)
            warn(f"spanprof: could not follow {name}: {error!r}")


class _Finder:
    """Delegates to the other finders, and wraps the loader they find in a ``_Loader``."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _callbacks or getattr(_searching, "name", None) == name:
            return None
        _searching.name = name
        try:
            for finder in list(sys.meta_path):
                find_spec = getattr(finder, "find_spec", None)
                if finder is self or find_spec is None:
                    continue
                spec = find_spec(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader)
                    return spec
            return None
        finally:
            _searching.name = None


class _Loader:
    """Executes the module with its own loader, then calls the callbacks."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for callback in _callbacks.get(module.__name__, ()):
            call(callback, module, f"the module {module.__name__}")
        # Last: if a signal handler interrupts the import, the program may repeat it.
        _callbacks.pop(module.__name__, None)
