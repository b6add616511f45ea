"""``capture``: the profile of one piece of work, such as one request, beside the continuous profile."""

from __future__ import annotations

import os
import sys

from . import host_log
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable

#: Attribute of the current span with the name of the file that ``save`` wrote.
PROFILE_FILE = "profile.file"
#: Attribute of a span with the keys of the profiles that are on, such as ``cpu`` and ``heap``.
PROFILE_TYPE = "profile.type"


def set_profile_types(span: Any) -> None:
    """Names the profiles that are on in an attribute of the span."""
    types = native.profile_types()
    if types:
        span.set_attribute(PROFILE_TYPE, types)


class Capture:
    """The result and the profile of captured work; also a scope for ``with`` and ``async with``, whose profile is complete
    at its end. It can be used once."""

    def __init__(self) -> None:
        #: The value of the captured function.
        self.result: Any = None
        self._open: Any = None
        self._scope: Any = None
        self._profile: Any = None

    def __enter__(self) -> Capture:
        self._open = native.OpenCapture()
        self._scope = native.tag_wrapper(self._open.labels())
        self._scope.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._scope.__exit__(*exception)
        self._profile = self._open.end()

    async def __aenter__(self) -> Capture:
        return self.__enter__()

    async def __aexit__(self, *exception: object) -> None:
        self._scope.__exit__(*exception)
        asyncio = sys.modules.get("asyncio")
        loop = asyncio and asyncio._get_running_loop()
        # The event loop runs on while the last samples are processed. Other libraries' loops wait some milliseconds.
        self._profile = await loop.run_in_executor(None, self._open.end) if loop else self._open.end()

    def pprof(self) -> bytes:
        """The profile as gzip-compressed pprof, with labels and span links; empty before the end of the scope."""
        return self._profile.pprof() if self._profile else b""

    def flamegraph(self) -> str:
        """A flame graph: one self-contained HTML page; empty before the end of the scope."""
        return self._profile.flamegraph() if self._profile else ""

    @property
    def types(self) -> list[str]:
        """Names of the profile types that have samples."""
        return self._profile.types if self._profile else []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file; its extension selects the format: ``.html``, ``.pb.gz`` or ``.folded``. The current OpenTelemetry span
        gets the attributes ``profile.file`` and ``profile.type``. Raises :class:`SpanprofError` when the file cannot be written."""
        if self._profile is None:
            return
        self._profile.save(path)
        trace = sys.modules.get("opentelemetry.trace")
        if trace is not None:
            span = trace.get_current_span()
            span.set_attribute(PROFILE_FILE, os.fspath(path))
            set_profile_types(span)

    def send(self, timeout: float | None = None) -> bool:
        """Sends the profile to the destinations of the running profiler, as types that begin with ``capture_``; True when it was
        delivered within ``timeout`` seconds, by default ``stop_timeout``. Later it is still sent, or counted as lost. An event
        loop awaits ``asyncio.to_thread(captured.send)``."""
        if self._profile is None:
            return False
        delivered = self._profile.send(timeout)
        host_log.log_queued_lines()
        return delivered


def capture(function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
    """Calls ``function`` and returns a :class:`Capture` with its result and its own profile: the samples of this thread meanwhile,
    and of every task and thread that runs in its context. For a coroutine function it returns an awaitable of it. Without a
    function it returns the :class:`Capture` as a scope.

    >>> with spanprof.capture() as captured:  # doctest: +SKIP
    ...     handle(request)
    >>> captured.save("request.html")         # doctest: +SKIP
    """
    if function is None:
        return Capture()
    import inspect  # Not at the top: it takes longer to import than the rest of the package.

    if inspect.iscoroutinefunction(function):
        return _capture_coroutine(function, args, kwargs)
    with Capture() as captured:
        captured.result = function(*args, **kwargs)
    return captured


async def _capture_coroutine(function: Callable[..., Any], args: tuple, kwargs: dict) -> Capture:
    async with Capture() as captured:
        captured.result = await function(*args, **kwargs)
    return captured
