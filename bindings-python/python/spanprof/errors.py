"""The one exception of the package. Only ``start`` and ``update`` raise it; after ``start`` nothing else does."""

from __future__ import annotations


class SpanprofError(Exception):
    """The profiler cannot start, or cannot take a new setting.

    ``kind`` is one of a closed set of words (``invalid_config``, ``unsupported_runtime``, ...), ``hint`` the way out.
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
