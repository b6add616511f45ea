"""The only exception of the package. Only ``start`` and ``update`` raise it."""

from __future__ import annotations


class SpanprofError(Exception):
    """The profiler cannot start, or cannot apply a new setting.

    ``kind`` is one of a closed set of names (``invalid_config``, ``unsupported_runtime``, ...); ``hint`` describes the remedy.
    """

    kind: str
    hint: str

    def __init__(self, message: str, kind: str = "", hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message = message
        self.kind = kind
        self.hint = hint

    def __reduce__(self) -> tuple:
        return (SpanprofError, (self.message, self.kind, self.hint))
