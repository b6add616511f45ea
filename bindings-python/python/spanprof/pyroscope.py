"""The names of Pyroscope's Python package as thin aliases: ``from spanprof import pyroscope`` replaces ``import pyroscope``.

Not here: its ``PYROSCOPE_*`` variables (the core reads them). Names without an equivalent are accepted and logged.
"""

from __future__ import annotations

import enum
import sys

from . import lifecycle
from .labels import tag_wrapper
from .native import native
from .pyroscope_settings import logger, warn_deprecated

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

    from typing_extensions import Unpack

    from .options import ConfigureOptions

__all__ = [
    "LineNo",
    "ProfilerImplementation",
    "add_thread_tag",
    "build_summary",
    "change_name",
    "configure",
    "configure_experimental_stack_profiler",
    "remove_tags",
    "remove_thread_tag",
    "runtime_name",
    "runtime_version",
    "shutdown",
    "tag",
    "tag_wrapper",
    "test_logger",
]


class LineNo(enum.Enum):
    """Accepted for compatibility; the executing line is always recorded."""

    LastInstruction = 0
    First = 1
    NoLine = 2


class ProfilerImplementation(enum.Enum):
    """Accepted for compatibility; there is one implementation."""

    PySpy = 0
    Stack = 1


def configure(
    app_name: str | None = None,
    application_name: str | None = None,
    server_address: str | None = None,
    **config: Unpack[ConfigureOptions],
) -> bool:
    """Pyroscope's name of :func:`spanprof.start`."""
    named = {"app_name": app_name, "application_name": application_name, "server_address": server_address}
    settings: Any = {**{name: value for name, value in named.items() if value is not None}, **config}
    return lifecycle.start(**settings)


def shutdown() -> bool:
    """Pyroscope's name of :func:`spanprof.stop`."""
    return lifecycle.stop()


def configure_experimental_stack_profiler(*_options: object, **_more: object) -> bool:
    """Accepted for compatibility: it configures a profiler that only Pyroscope has."""
    logger().debug("configure_experimental_stack_profiler is ignored: there is one implementation")
    return True


def runtime_name() -> str:
    """The name of the interpreter, as in Pyroscope."""
    return sys.implementation.name


def runtime_version() -> str:
    """The version of the interpreter, as in Pyroscope."""
    version = sys.implementation.version
    is_release = version.releaselevel == "final" and not version.serial
    return ".".join(str(part) for part in (version[:3] if is_release else version))


def add_thread_tag(key: str, value: str) -> None:
    """Adds a label to the current context, until :func:`remove_thread_tag`. Prefer ``tag_wrapper``, which removes it itself."""
    native.add_labels({key: value})


def remove_thread_tag(key: str, value: str) -> None:
    """Removes a label added by :func:`add_thread_tag`; it must have this value."""
    native.remove_label(key, value)


def tag(tags: dict[str, str]) -> None:
    """Deprecated by Pyroscope: adds labels to the current context."""
    warn_deprecated("tag", "tag_wrapper")
    native.add_labels(tags)


def remove_tags(*keys: str) -> None:
    """Deprecated by Pyroscope: removes labels from the current context, regardless of their values."""
    warn_deprecated("remove_tags", "tag_wrapper")
    for key in keys:
        native.remove_label(key, None)


def change_name(name: str) -> None:
    """Deprecated by Pyroscope; pass the service's name to ``start``."""
    warn_deprecated("change_name", "start(service_name=...)")


def build_summary() -> str:
    """Deprecated by Pyroscope: name and version of this build."""
    warn_deprecated("build_summary", "stats()")
    return f"spanprof {native.version}"


def test_logger() -> None:
    """Deprecated by Pyroscope: writes one line to the logger."""
    warn_deprecated("test_logger", "logging.getLogger('spanprof')")
    logger().info("spanprof logs here")
