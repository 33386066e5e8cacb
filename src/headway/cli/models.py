"""`headway models`: which models have a name here, and which of them are in the cache."""

import argparse
import json
from typing import TYPE_CHECKING

from headway.models.progress import megabytes
from headway.models.sources import ModelListing, list_models

if TYPE_CHECKING:
    from headway.cli.main import Subparsers

_ROW = "{:<12} {:<30} {:>8}  {:<12} {}"


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "models",
        help="list the models that have a name here",
        description="List the models that have a name here. Any other GGUF file is served by its path.",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    listings = list_models()
    if args.json:
        print(json.dumps([_as_json(listing) for listing in listings], indent=2))
        return 0
    print(_ROW.format("NAME", "MODEL", "SIZE", "LICENCE", "FILE"))
    for listing in listings:
        model = listing.model
        where = str(listing.path) if listing.cached else f"not fetched; `headway pull {model.alias}`"
        print(_ROW.format(model.alias, model.description, megabytes(model.num_bytes), model.licence, where))
    return 0


def _as_json(listing: ModelListing) -> dict[str, object]:
    model = listing.model
    return {
        "name": model.alias,
        "description": model.description,
        "num_bytes": model.num_bytes,
        "licence": model.licence,
        "sha256": model.sha256,
        "path": str(listing.path),
        "cached": listing.cached,
    }
