"""Translates the keyword arguments of Pyroscope's ``configure`` into settings, and warns of its deprecated names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any

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
                warn_deprecated("app_name", "service_name")
            ours.setdefault(_RENAMED[key], value)
        elif key in _IGNORED:
            logger().debug("`%s` is ignored: %s", key, _IGNORED[key])
        elif key == "basic_auth_username":
            user = value
        elif key == "basic_auth_password":
            password = value
        elif key == "auth_token":
            if value:
                warn_deprecated("auth_token", "basic_auth_username and basic_auth_password, or http_headers")
                headers["authorization"] = f"Bearer {value}"
        elif key == "tenant_id":
            if value:
                headers["x-scope-orgid"] = value
        elif key == "tags" and isinstance(value, dict):
            ours[key] = {name: text for name, text in value.items() if text is not None}
        elif key == "http_headers":
            if hasattr(value, "keys"):
                headers.update(value)
            elif value:
                ours["headers"] = value  # The core's error names the expected value.
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
    own = ours.get("headers") or {}
    if headers and hasattr(own, "keys"):
        headers.update(own)
        ours["headers"] = headers
    return ours


def logger() -> Any:
    """The logger ``spanprof``."""
    import logging  # Not at the top: programs that do not log do not load it.

    return logging.getLogger("spanprof")


def _enable_logging() -> None:
    import logging

    spanprof_logger = logger()
    spanprof_logger.setLevel(logging.INFO)
    if not spanprof_logger.hasHandlers():
        spanprof_logger.addHandler(logging.StreamHandler())


def warn_deprecated(name: str, instead: str) -> None:
    """Warns of a name that Pyroscope has deprecated."""
    import warnings

    warnings.warn(f"spanprof: `{name}` is deprecated, use {instead}", DeprecationWarning, stacklevel=5)
