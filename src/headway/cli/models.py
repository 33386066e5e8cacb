"""`headway models`: the models that have a name here, and those that this machine's caches hold."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.cli.table import aligned

if TYPE_CHECKING:
    from headway.cli.main import Subparsers
    from headway.models.library import LibraryEntry

_HEAD = ("NAME", "ARCHITECTURE", "SIZE", "FORMATS", "CONTEXT", "SOURCE")
_SOURCES = {"alias": "alias", "cache": "cache", "hub": "hub cache"}
_MAX_FORMATS = 3


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "models",
        help="list the models that have a name here or lie in a cache",
        description="List the models that have a name here, and those in Headway's cache and the Hugging Face hub's. "
        "Any other is served by its path, or by its name on the hub.",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from headway.models.hub_cache import hub_cache_folder
    from headway.models.library import list_library
    from headway.models.sources import cache_folder

    entries = list_library(cache_folder(), hub_cache_folder())
    if args.json:
        print(json.dumps([_as_json(entry) for entry in entries], indent=2))
        return 0
    for line in aligned([_HEAD, *map(_row, entries)], "<" * len(_HEAD)):
        print(line)
    for entry in entries:
        if entry.problem is not None:
            print(f"\n{entry.name}: {entry.problem}")
    return 0


def _row(entry: "LibraryEntry") -> Sequence[str]:
    summary = entry.summary
    source = _SOURCES[entry.source]
    if entry.problem is not None:
        source += ", broken"
    elif entry.path is None:
        source += f", not fetched: `headway pull {entry.name}`"
    formats = [use.type for use in summary.types] if summary else []
    return (
        entry.name,
        (summary.architecture if summary else None) or "-",
        "-" if entry.num_bytes is None else f"{entry.num_bytes / 1e6:,.0f} MB",
        " ".join((*formats[:_MAX_FORMATS], *("…" for _ in formats[_MAX_FORMATS : _MAX_FORMATS + 1]))) or "-",
        f"{summary.context:,}" if summary and summary.context else "-",
        source,
    )


def _as_json(entry: "LibraryEntry") -> dict[str, object]:
    summary = entry.summary
    return {
        "name": entry.name,
        "source": entry.source,
        "path": None if entry.path is None else str(entry.path),
        "num_bytes": entry.num_bytes,
        "architecture": summary.architecture if summary else None,
        "formats": [use.type for use in summary.types] if summary else [],
        "context": summary.context if summary else None,
        "licence": summary.licence if summary else None,
        "num_parameters": summary.num_parameters if summary else None,
        "problem": entry.problem,
    }
