"""`headway pull`: fetch a model into the cache, or find it there."""

import argparse
from typing import TYPE_CHECKING

from headway.models.sources import MODELS

if TYPE_CHECKING:
    from headway.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "pull",
        help="fetch a model into the cache",
        description="Fetch a model, check it, and print where it lies. An interrupted fetch leaves nothing half-made.",
    )
    parser.add_argument("model", metavar="MODEL", help=f"one of: {', '.join(MODELS)}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fetch and print the path; raises FetchError, ConfigError."""
    from headway.models.fetch import fetch_model

    print(fetch_model(args.model))
    return 0
