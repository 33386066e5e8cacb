"""`headway pull`: fetch a model into the cache, or find it there; a hub's model is brought up to date."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import MODEL_HELP
from headway.core.errors import FetchError

if TYPE_CHECKING:
    from headway.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "pull",
        help="fetch a model into the cache",
        description="Fetch a model, check it, and print where it lies. An interrupted fetch leaves nothing half-made. "
        "A model of the Hugging Face hub is brought up to date; other commands take it from the cache as it is.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fetch and print the path; raises FetchError, ConfigError."""
    from headway.models.fetch import resolve_model
    from headway.models.sources import exists, parse_source

    source = parse_source(args.model)
    if isinstance(source, Path) and not exists(source):
        raise FetchError(f"There is no file or folder {source}: check the path.")
    print(resolve_model(args.model, update=True))
    return 0
