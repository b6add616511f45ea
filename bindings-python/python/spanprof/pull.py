"""Parts shared by the handlers of ``/debug/pprof`` in ``wsgi`` and ``asgi``. Not here: parameters, access (native core)."""

from __future__ import annotations

import threading

from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable

#: Path of the handlers, if the program names no other.
DEFAULT_PATH = "/debug/pprof"
#: Limit of a request's body; one more byte is read, which the native core refuses.
MAX_BODY_BYTES = 65536


def split_path(path: str, prefix: str) -> tuple[str, str] | None:
    """The handler's path and the rest of a request's; ``None`` for a request of the application. Beside the default path
    are the control operations, ``/debug/spanprof``.
    """
    if path == prefix or path.startswith(prefix + "/"):
        return prefix, path[len(prefix) :]
    if prefix == DEFAULT_PATH and (path + "/").startswith("/debug/spanprof/"):
        return "/debug", path[len("/debug") :]
    return None


def content_length(text: str | None) -> int:
    """Bytes of a body to read; 0 for a missing or invalid length."""
    length = int(text) if text is not None and text.isascii() and text.isdigit() else 0
    return min(length, MAX_BODY_BYTES + 1)


def with_length(headers: list[tuple[str, str]], content: bytes) -> list[tuple[str, str]]:
    """The headers of a response with the length of its body."""
    return [*headers, ("Content-Length", str(len(content)))]


class PullThread(threading.Thread):
    """Collects a profile and passes the response to ``done``. Ends early when canceled or when the main thread has ended:
    the interpreter waits for its threads at exit.
    """

    def __init__(self, arguments: tuple, done: Callable[[tuple], Any]) -> None:
        super().__init__(name="spanprof-pull")
        self._arguments = arguments
        self._done = done
        self._canceled = False

    def cancel(self) -> None:
        """Ends the collection within a quarter of a second."""
        self._canceled = True

    def _has_left(self) -> bool:
        return self._canceled or not threading.main_thread().is_alive()

    def run(self) -> None:
        response = native.pull(*self._arguments, self._has_left)
        try:
            self._done(response)
        except RuntimeError:
            # The event loop is closed; there is nobody to respond to.
            pass
