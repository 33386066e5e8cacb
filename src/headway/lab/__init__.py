"""Measures latency as a user feels it, on any OpenAI-compatible endpoint. It knows nothing of our own engine or gateway.

`headway.lab.run` is its Python API; it needs the extra `lab`, the modules beside it need no more than they import.
"""

from typing import TYPE_CHECKING

__all__ = ["run"]

if TYPE_CHECKING:
    from headway.lab.api import run


def __getattr__(name: str) -> object:
    """Import the API on its first use: numpy and scipy take their time, and a null server needs neither."""
    if name == "run":
        from headway.lab.api import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
