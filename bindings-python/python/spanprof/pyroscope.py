"""Pyroscope's Python API as thin aliases: its documented snippets run with the import renamed.

Not here: its ``PYROSCOPE_*`` variables (the core reads them). Names without an equivalent are accepted and logged.
"""

from __future__ import annotations

import enum
import sys

from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

    from typing_extensions import Unpack

    from .options import ConfigureOptions


class LineNo(enum.Enum):
    """Accepted for compatibility; the executing line is always recorded."""

    LastInstruction = 0
    First = 1
    NoLine = 2


class ProfilerImplementation(enum.Enum):
    """Accepted for compatibility; there is one implementation."""

    PySpy = 0
    Stack = 1


_RENAMED = {
    "application_name": "service_name",
    "app_name": "service_name",
    "server_address": "endpoint",
    "cpu_enabled": "cpu",
    "mem_enabled": "heap",
    "mem_heap_sample_size": "heap_interval",
}
_IGNORED = {
    "gil_only": "threads without the GIL are profiled too",
    "line_no": "the executing line is always recorded",
    "report_pid": "the process id is part of the resource",
    "detect_subprocesses": "child processes profile themselves",
    "native": "native frames are not walked",
    "cpu_implementation": "there is one implementation",
    "log_level": "set the level of the logger `spanprof`",
    "mem_max_nframe": "max_stack_depth limits every stack",
    "mem_enable_mem_domain": "the MEM and OBJ domains are profiled",
}


def translated(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` with Pyroscope's keyword arguments replaced by spanprof's, which take precedence where both are given."""
    ours: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    user = password = None
    for key, value in config.items():
        if key in _RENAMED:
            if key == "app_name":
                _deprecated("app_name", "service_name")
            ours.setdefault(_RENAMED[key], value)
        elif key in _IGNORED:
            _logger().debug("`%s` is ignored: %s", key, _IGNORED[key])
        elif key == "basic_auth_username":
            user = value
        elif key == "basic_auth_password":
            password = value
        elif key == "auth_token":
            if value:
                _deprecated("auth_token", "basic_auth_username and basic_auth_password, or http_headers")
                headers["authorization"] = f"Bearer {value}"
        elif key == "tenant_id":
            if value:
                headers["x-scope-orgid"] = value
        elif key == "tags" and isinstance(value, dict):
            ours[key] = {name: text for name, text in value.items() if text is not None}
        elif key == "http_headers":
            headers.update(value or {})
        elif key == "oncpu":
            if not value:
                ours.setdefault("wall", True)
        elif key in ("report_thread_id", "report_thread_name"):
            if value:
                ours.setdefault("thread_labels", True)
        elif key == "enable_logging":
            if value:
                _enable_logging()
        else:
            ours[key] = value
    if user or password:
        import base64

        pair = base64.b64encode(f"{user or ''}:{password or ''}".encode()).decode()
        headers["authorization"] = f"Basic {pair}"
    if headers:
        headers.update(ours.get("headers") or {})
        ours["headers"] = headers
    return ours


def _logger() -> Any:
    import logging  # Not at the top: programs that do not log do not load it.

    return logging.getLogger("spanprof")


def _enable_logging() -> None:
    import logging

    logger = _logger()
    logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())


def _deprecated(name: str, instead: str) -> None:
    import warnings

    warnings.warn(f"spanprof: `{name}` is deprecated, use {instead}", DeprecationWarning, stacklevel=5)


def configure(
    app_name: str | None = None,
    application_name: str | None = None,
    server_address: str | None = None,
    **config: Unpack[ConfigureOptions],
) -> bool:
    """Pyroscope's name of :func:`spanprof.start`."""
    from .lifecycle import start

    named = {"app_name": app_name, "application_name": application_name, "server_address": server_address}
    given: Any = {**{name: value for name, value in named.items() if value is not None}, **config}
    return start(**given)


def shutdown() -> bool:
    """Pyroscope's name of :func:`spanprof.stop`."""
    from .lifecycle import stop

    return stop()


def configure_experimental_stack_profiler(*_options: object, **_more: object) -> bool:
    """Accepted for compatibility: it configures a profiler that only Pyroscope has."""
    _logger().debug("configure_experimental_stack_profiler is ignored: there is one implementation")
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
    _deprecated("tag", "tag_wrapper")
    native.add_labels(tags)


def remove_tags(*keys: str) -> None:
    """Deprecated by Pyroscope: removes labels from the current context, regardless of their values."""
    _deprecated("remove_tags", "tag_wrapper")
    for key in keys:
        native.remove_label(key, None)


def change_name(name: str) -> None:
    """Deprecated by Pyroscope; pass the service's name to ``start``."""
    _deprecated("change_name", "start(service_name=...)")


def build_summary() -> str:
    """Deprecated by Pyroscope: name and version of this build."""
    _deprecated("build_summary", "stats()")
    return f"spanprof {native.version}"


def test_logger() -> None:
    """Deprecated by Pyroscope: writes one line to the logger."""
    _deprecated("test_logger", "logging.getLogger('spanprof')")
    _logger().info("spanprof logs here")
