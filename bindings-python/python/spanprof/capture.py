"""``capture``: the profile of one piece of work, such as one request, beside the continuous profile."""

from __future__ import annotations

import os
import sys

from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable

#: Attribute of the current span with the name of the file that ``save`` wrote.
PROFILE_FILE = "profile.file"


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
        gets the attribute ``profile.file``. Raises :class:`SpanprofError` when the file cannot be written."""
        if self._profile is None:
            return
        self._profile.save(path)
        trace = sys.modules.get("opentelemetry.trace")
        if trace is not None:
            trace.get_current_span().set_attribute(PROFILE_FILE, os.fspath(path))


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
