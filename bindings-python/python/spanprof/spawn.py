"""Passes the configuration to children of ``multiprocessing`` and its copies that are not forked from this process (spawn,
forkserver, loky). Not here: the start in the child (``spawn_child``).

The parent's configuration is part of the preparation data, in multiprocessing's own pipe. Headers are secrets, so it appears
neither in a command line nor in the environment. A child that cannot load the package runs without a profiler.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType

from .imports import when_imported
from .interruptions import is_interruption
from .native import native
from .replacements import replace

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

#: Modules with a function ``get_preparation_data``, whose dictionary the child unpickles first.
_MODULES = (
    "multiprocessing.spawn",
    "multiprocess.spawn",
    "billiard.spawn",
    "loky.backend.spawn",
    "joblib.externals.loky.backend.spawn",
)

_installed = False
_configuration: dict[str, Any] = {}

# Runs in the child while it unpickles the preparation data, before `sys.path` is set; must not raise.
_START_IN_CHILD = """
try:
    import sys
    own_path = sys.path[:]
    sys.path[:] = parent_path
    try:
        import spanprof.spawn_child
    finally:
        sys.path[:] = own_path
    spanprof.spawn_child.start_in_child(configuration)
except Exception:
    pass
"""


class _StartInChild:
    """Starts the profiler in the process that unpickles it."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.configuration = configuration

    def __reduce__(self) -> tuple:
        variables = {"configuration": self.configuration, "parent_path": list(sys.path)}
        return (exec, (_START_IN_CHILD, variables))


def install(configuration: dict[str, Any]) -> None:
    """Stores the arguments of ``start``, and wraps the preparation of children once."""
    global _installed
    _configuration.clear()
    remember(configuration)
    if not _installed:
        for module in _MODULES:
            when_imported(module, _wrap)
        _installed = True


def remember(configuration: dict[str, Any]) -> None:
    """Adds the arguments of ``update``."""
    _configuration.update((key, value) for key, value in configuration.items() if _is_picklable(value))


def _is_picklable(value: object, depth: int = 0) -> bool:
    if type(value) in (str, int, float, bool, type(None)):
        return True
    if type(value) in (list, tuple, dict) and depth < 4:
        parts = [*value, *value.values()] if type(value) is dict else value
        return all(_is_picklable(part, depth + 1) for part in parts)
    import pickle  # Not at the top: plain settings do not need it.

    try:
        pickle.dumps(value)
    except Exception as error:
        if is_interruption(error):
            raise
        return False
    return True


def _wrap(module: ModuleType) -> None:
    original = module.get_preparation_data

    @functools.wraps(original)
    def get_preparation_data(*arguments: Any, **keywords: Any) -> dict:
        data = original(*arguments, **keywords)
        if native.is_running():
            # The child's argv is that of multiprocessing, so the service name is taken from the parent.
            service_name = native.setting("service_name")
            configuration = dict(_configuration)
            if service_name:
                configuration["service_name"] = service_name
            data["spanprof"] = _StartInChild(configuration)
        return data

    replace(module, "get_preparation_data", original, get_preparation_data)
