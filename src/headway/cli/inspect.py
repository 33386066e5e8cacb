"""`headway inspect`: what is in a model, whether it can be run here, and how much memory it would take."""

import argparse
import json
from typing import TYPE_CHECKING

from headway.core.config import EngineConfig

if TYPE_CHECKING:
    from headway.cli.main import Subparsers

_ENGINE = EngineConfig(model="")


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "inspect",
        help="tell what is in a model and whether it will fit",
        description="Tell what is in a model, whether Headway can run it, and what memory it takes. Nothing is fetched, "
        "and no weights are loaded.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a .gguf file, a model's folder, or a name of one that has been fetched",
    )
    parser.add_argument(
        "--group-size",
        type=int,
        choices=(32, 64, 128),
        default=_ENGINE.group_size,
        help="as `serve` will have it (default: 32)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it; raises ModelFileError for what is no model, FetchError for what is not here."""
    from headway.cli.inspect_report import as_json, as_text
    from headway.cli.inspection import inspect_model
    from headway.models.library import find_here
    from headway.runner.machine import available_memory_bytes

    inspection = inspect_model(
        find_here(args.model), group_size=args.group_size, available_bytes=available_memory_bytes()
    )
    print(json.dumps(as_json(inspection), indent=2) if args.json else as_text(inspection))
    return 0
