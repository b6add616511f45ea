"""Continuous profiler that lives inside the service."""

from ._spanprof import version as __version__

__all__ = ["__version__"]
