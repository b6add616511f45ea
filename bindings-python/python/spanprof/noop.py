"""No-op replacement of the native module when that cannot be loaded: every function exists and does nothing.

The program runs as without a profiler; one warning at import reports the reason.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable


version = "0"
outcome_prefix = "spanprof: stopped"
variable = None
#: The reason why this interpreter cannot be profiled: ``start`` logs it once, as the native module would.
declined = ""
_lines: list[tuple[int, str, bool]] = []


class Scope:
    """Scope without effect: decoration returns the function itself."""

    __slots__ = ()

    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *exception: object) -> None: ...

    def __call__(self, function: Any) -> Any:
        return function


class Labels:
    """Prepared labels without effect."""

    __slots__ = ()

    def __init__(self, *labels: Any, **keyword_labels: Any) -> None: ...


_SCOPE = Scope()


class CapturedProfile:
    """A profile without samples."""

    types: list[str] = []

    def pprof(self) -> bytes:
        return b""

    def flamegraph(self) -> str:
        return ""

    def save(self, path: object) -> None: ...

    def send(self, timeout: float | None = None) -> bool:
        return False


class OpenCapture:
    def labels(self) -> None: ...

    def end(self) -> CapturedProfile:
        return CapturedProfile()


def profile_types() -> list[str]:
    return []


def tag_wrapper(labels: Any = None, /, *more: Any, **keyword_labels: Any) -> Scope:
    return _SCOPE


def start(config: dict) -> bool | None:
    global declined
    is_disabled = config.get("enabled") is False or _is_set("SPANPROF_DISABLED") or _is_set("OTEL_SDK_DISABLED")
    if declined and not is_disabled:
        _lines.append((30, f"spanprof: this process is not profiled: {declined}", True))
        declined = ""
        return None
    return False


def _is_set(switch: str) -> bool:
    return os.environ.get(switch, "").lower() not in ("", "0", "false")


def stop(at_most: float | None = None) -> bool:
    return True


def flush(timeout: float | None = None) -> bool:
    return True


def update(config: dict) -> bool:
    return False


def stats() -> dict:
    return {}


def is_running() -> bool:
    return False


def follows_requests() -> bool:
    return False


def begin_request(trace_id: str = "") -> int:
    return 0


def in_request(labels: Any, request: int) -> Labels:
    return Labels()


def inherits_threads() -> bool:
    return False


def setting(key: str) -> str | None:
    return None


def pull(
    method: str, mount: str, rest: str, query: str, headers: list, body: bytes, has_left: Callable[[], bool]
) -> tuple[int, list[tuple[str, str]], bytes]:
    return 503, [], b"the profiler is not running\n"


def config_keys() -> list:
    return []


class WaitTimer:
    def end(self, lock: object = None) -> None: ...


def begin_wait() -> WaitTimer | None:
    return None


def lock_types(metaclass: type, plain_type: type, new_plain: Callable, plain_recursive: type) -> list:
    return [plain_type, new_plain, plain_recursive]


def watch_greenlet_switches(function: object) -> bool:
    return False


def cli_main(arguments: list[str]) -> int:
    raise SystemExit("spanprof: the native module of this package could not be loaded; reinstall it for this platform")


def suspended_tasks_settings() -> tuple[float | None, bool]:
    return None, False


def wait_for_contexts(opened: int, seconds: float | None) -> int:
    return opened


def has_open_requests() -> bool:
    return False


def open_requests_of(contexts: list[int]) -> list[int]:
    return [0] * len(contexts)


def take_log_line() -> tuple[int, str, bool] | None:
    return _lines.pop(0) if _lines else None


def exit_function(original: Any) -> Any:
    return original


def start_thread(function: Callable) -> bool:
    import _thread

    return bool(_thread.start_new_thread(function, ()))


def has_standard_error() -> bool:
    return True


def write_to_standard_error(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def current() -> Any:
    return 0


def describe(id: int | None = None) -> dict:
    return {"labels": {}, "trace_id": "", "span_id": "", "local_root_span_id": ""}


def link_opentelemetry(originals: tuple, variable: Any, key: Any, span_context: type, describe: Callable) -> tuple:
    return originals


def is_linked() -> bool:
    return False


def bind_context(function: Callable) -> Callable:
    return function


def call_hook(hook: Callable) -> None:
    hook()


# Functions without a result.
def begin_root_span(trace_id: int, span_id: int) -> None: ...
def end_root_span(
    trace_id: int, span_id: int, duration_ns: int, name: str, method: str, route: str, is_error: bool
) -> None: ...
def begin_client_span(span_id: int) -> None: ...
def end_client_span(span_id: int, name: str, duration_ns: int) -> None: ...
def adopt_resource(attributes: Any) -> None: ...
def end_request(request: int, duration_ns: int, endpoint: str, is_error: bool) -> None: ...
def serve_pulls() -> None: ...
def after_fork_in_child() -> None: ...
def register_current_thread() -> None: ...
def name_thread(thread_id: int, name: str) -> None: ...
def hook_arrays() -> None: ...
def wake_tasks_thread() -> None: ...
def submit_awaiting_tasks(tasks: list, /) -> None: ...
def begin_storing_tasks() -> None: ...
def store_suspended_tasks(tasks: list, /) -> None: ...
def log_fetch_failed() -> None: ...
def forget_standard_error() -> None: ...
def close_log() -> None: ...
def set_log_notifier(function: Callable) -> None: ...
def set_settings_notifier(function: Callable) -> None: ...
def follow_settings() -> None: ...
def name_root_spans() -> None: ...
def add_labels(labels: Any) -> None: ...
def remove_label(key: Any, value: Any = None) -> None: ...
def set_current(value: Any) -> None: ...
def set_decorate(decorate: Callable) -> None: ...
def set_interruption_test(test: Callable) -> None: ...
