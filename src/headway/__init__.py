"""Headway: latency-first LLM serving. The public names are `headway.__all__`."""

from headway.core.version import __version__

__all__ = ["__version__"]
