"""Measures latency as a user feels it, on any OpenAI-compatible endpoint. It knows nothing of our own engine or gateway.

`headway.lab.run` is its Python API and `write_report` makes a page of what that returns; they need the extra `lab`, the
modules beside them need no more than they import.
"""

from typing import TYPE_CHECKING

__all__ = ["run", "write_report"]

if TYPE_CHECKING:
    from headway.lab.api import run
    from headway.lab.html_report import write_report


def __getattr__(name: str) -> object:
    """Import the API on its first use: numpy and scipy take their time, and a null server needs none of it."""
    if name == "run":
        from headway.lab.api import run

        return run
    if name == "write_report":
        from headway.lab.html_report import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
