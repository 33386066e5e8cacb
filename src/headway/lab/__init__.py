"""Measures latency as a user feels it, on any OpenAI-compatible endpoint. It knows nothing of our own engine or gateway.

`headway.lab.run` and `compare` are its Python API; `write_report` makes a page of what `run` returns, `write_raw` keeps it
and `read_raw` reads it back. They need the extra `lab`, the modules beside them need no more than they import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["compare", "read_raw", "run", "write_raw", "write_report"]

if TYPE_CHECKING:
    from headway.lab.api import compare, run
    from headway.lab.html_report import write_report
    from headway.lab.raw_file import read_raw, write_raw

_MODULES = {
    "compare": "api",
    "run": "api",
    "read_raw": "raw_file",
    "write_raw": "raw_file",
    "write_report": "html_report",
}


def __getattr__(name: str) -> object:
    """Import the API on its first use: numpy and scipy take their time, and a null server needs none of it."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
